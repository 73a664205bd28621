import { redactPassword } from "../database-url.ts";
import { createLargePages } from "../large-page.ts";
import type { OpenStore, Store, StoreOptions } from "../store.ts";
import { createWriteProbe } from "../write-probe.ts";
import { backUp } from "./backup.ts";
import { checkDatabase, plain_sections } from "./check.ts";
import { citus_sections } from "./citus/check.ts";
import { openCitusCopySource } from "./citus/copy-source.ts";
import { createCitusBulkStores } from "./citus/import.ts";
import { createCitusOrderStore } from "./citus/orders.ts";
import { createCitusUserStore } from "./citus/users.ts";
import { connect, type Database } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import { copySourceOf, withCopySource } from "./copy-source.ts";
import { createLockedQueue } from "./create-queue.ts";
import { describePostgresError } from "./errors.ts";
import { deleteExpiredKeys } from "./idempotency.ts";
import { createBulkStores } from "./import.ts";
import { migrate } from "./migrate.ts";
import { createPlainOrderStore } from "./orders.ts";
import { createTokenStore } from "./tokens.ts";
import { createPlainUserStore } from "./users.ts";

/** How long `statistics` waits for the size of the database. Prometheus times out after 10 s by default. */
const SIZE_TIMEOUT_MS = 1_000;

const probe_write = `
  update user_api
  set probed_at = $1
`;
const database_size = "select pg_database_size(current_database())::float8 as bytes";

/** The parts of a store that depend on the layout. */
const layouts = {
  plain: {
    createUserStore: createPlainUserStore,
    createOrderStore: createPlainOrderStore,
    createBulkStores,
    openCopySource: copySourceOf,
    sections: plain_sections,
  },
  citus: {
    createUserStore: createCitusUserStore,
    createOrderStore: createCitusOrderStore,
    createBulkStores: createCitusBulkStores,
    openCopySource: openCitusCopySource,
    sections: citus_sections,
  },
};

function createStore(db: Database, { database_url, now, max_unsent_bytes }: StoreOptions): Store {
  const large_pages = createLargePages(max_unsent_bytes);
  const context: StoreContext = { db, large_pages, runLocked: createLockedQueue(), now };
  const layout = layouts[db.layout];
  let database_bytes = 0;

  async function measureSize(): Promise<void> {
    const row = await db.run("read", (session) => session.first<{ bytes: number }>(database_size));
    database_bytes = row?.bytes ?? 0;
  }

  return {
    users: layout.createUserStore(context),
    orders: layout.createOrderStore(context),
    bulk: layout.createBulkStores(db, now),
    tokens: createTokenStore(context),
    checkWritable: createWriteProbe({
      write: () => db.run("write", (session) => session.all(probe_write, now().toISOString())),
      isFull: db.limiter.isFull,
    }),
    async statistics() {
      // On failure, the last known size: the other figures matter most while the database is unreachable.
      await Promise.race([measureSize().catch(() => {}), Bun.sleep(SIZE_TIMEOUT_MS)]);
      return {
        pending_writes: db.limiter.pendingWrites(),
        unsent_bytes: large_pages.unsentBytes(),
        database_bytes,
        wal_bytes: 0,
      };
    },
    withCopySource: (work) =>
      withCopySource(db, redactPassword(database_url), layout.openCopySource, work),
    check: () => checkDatabase(db, layout.sections),
    backUp,
    deleteExpiredKeys: () => deleteExpiredKeys(db, now()),
    close: db.close,
  };
}

/** Any number of processes may open the same database. @see OpenStore */
export const openPostgres: OpenStore = async (options) => {
  try {
    const db = connect(options);
    try {
      await migrate(db, options.create);
      return createStore(db, options);
    } catch (error) {
      await db.close();
      throw error;
    }
  } catch (error) {
    throw describePostgresError(`Cannot open ${redactPassword(options.database_url)}`, error);
  }
};
