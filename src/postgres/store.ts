/** The store of an open PostgreSQL database. */
import { redactPassword } from "../database-url.ts";
import type { Store, StoreOptions } from "../store.ts";
import { createWriteProbe } from "../write-probe.ts";
import { watchChanges } from "./change-watch.ts";
import { createChangeStore } from "./changes.ts";
import { checkDatabase, plainSections } from "./check.ts";
import { citusSections } from "./citus/check.ts";
import { openCitusCopySource } from "./citus/copy-source.ts";
import { createCitusBulkStores } from "./citus/import.ts";
import { createCitusOrderStore } from "./citus/orders.ts";
import { collectOrders } from "./citus/outbox.ts";
import { createCitusUserStore } from "./citus/users.ts";
import type { Database } from "./connection.ts";
import { createContext } from "./context.ts";
import { copySourceOf, withCopySource } from "./copy-source.ts";
import { deleteExpiredKeys } from "./idempotency.ts";
import { createBulkStores } from "./import.ts";
import { createNumbering, createReadOnlyNumbering, readFeed } from "./numbering.ts";
import { createPlainOrderStore } from "./orders.ts";
import { createTokenStore } from "./tokens.ts";
import { createPlainUserStore } from "./users.ts";

/** How long `statistics` waits for the size of the database. Prometheus times out after 10 s by default. */
const SIZE_TIMEOUT_MS = 1_000;

/** The function is in PL/pgSQL, as the triggers of creates: a session that cannot load it fails the test. */
const probeWrite = `
  update user_api
  set probed_at = $1
  where feed_origin() is not null
`;
const databaseSize = "select pg_database_size(current_database()) as bytes";

/** The parts of a store that depend on the layout. */
const layouts = {
  plain: {
    createUserStore: createPlainUserStore,
    createOrderStore: createPlainOrderStore,
    createBulkStores,
    openCopySource: copySourceOf,
    collect: async () => {},
    sections: plainSections,
  },
  citus: {
    createUserStore: createCitusUserStore,
    createOrderStore: createCitusOrderStore,
    createBulkStores: createCitusBulkStores,
    openCopySource: openCitusCopySource,
    collect: collectOrders,
    sections: citusSections,
  },
};

export function createStore(db: Database, options: StoreOptions): Store {
  const { databaseUrl, now } = options;
  const readOnly = options.mode === "serve-read-only";
  const layout = layouts[db.layout];
  const numbering = readOnly ? createReadOnlyNumbering(db) : createNumbering(db, layout.collect);
  const subscribe = watchChanges(db, numbering.numberAll);
  const context = createContext({ db, now });
  let databaseBytes = 0;

  async function measureSize(): Promise<void> {
    const row = await db.run("read", (session) => session.first<{ bytes: number }>(databaseSize));
    databaseBytes = row?.bytes ?? 0;
  }

  return {
    users: layout.createUserStore(context),
    orders: layout.createOrderStore(context),
    bulk: layout.createBulkStores(db, now),
    tokens: createTokenStore(context),
    changes: createChangeStore(context, numbering, subscribe),
    checkUsable: createWriteProbe(() =>
      readOnly
        ? readFeed(db)
        : db.run("write", (session) => session.all(probeWrite, now().toISOString())),
    ),
    archive: () => null,
    async statistics() {
      // On failure, the last known size: the other figures matter most while the database is unreachable.
      await Promise.race([measureSize().catch(() => {}), Bun.sleep(SIZE_TIMEOUT_MS)]);
      return {
        pendingWrites: db.limiter.pendingWrites(),
        databaseBytes,
        walBytes: 0,
        freeBytes: null,
        lastBackupS: null,
      };
    },
    withCopySource: (work) =>
      withCopySource(db, redactPassword(databaseUrl), layout.openCopySource, work),
    check: () => checkDatabase(db, layout.sections),
    deleteExpiredKeys: (signal) => deleteExpiredKeys(db, now(), signal),
    close: db.close,
  };
}
