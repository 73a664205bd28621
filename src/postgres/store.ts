import { redactPassword } from "../database-url.ts";
import type { Store, StoreOptions } from "../store.ts";
import { createWriteProbe } from "../write-probe.ts";
import { watchChanges } from "./change-watch.ts";
import { createChangeStore } from "./changes.ts";
import { checkDatabase } from "./check.ts";
import type { Database } from "./connection.ts";
import { createContext } from "./context.ts";
import { withCopySource } from "./copy-source.ts";
import { deleteExpiredKeys } from "./idempotency.ts";
import { createBulkStores } from "./import.ts";
import { createNumbering } from "./numbering.ts";
import { createOrderStore } from "./orders.ts";
import type { Placement } from "./placement.ts";
import { createTokenStore } from "./tokens.ts";
import { createUserStore } from "./users.ts";

/** How long `statistics` waits for the size of the database. Prometheus times out after 10 s by default. */
const SIZE_TIMEOUT_MS = 1_000;

/**
 * The function is in PL/pgSQL, as `number_changes`: a session that cannot load it fails the test. The sequence is missing
 * if the tables were distributed while the server ran.
 */
const probeWrite = ({ orderIds }: Placement) => `
  update user_api
  set probed_at = $1
  where feed_origin() is not null
    and (select last_value from ${orderIds}) > 0
`;
const databaseSize = "select pg_database_size(current_database()) as bytes";

export function createStore(db: Database, placement: Placement, options: StoreOptions): Store {
  const { databaseUrl, now } = options;
  const readOnly = options.mode === "serve-read-only";
  const numberChanges = createNumbering(db, readOnly);
  const context = createContext({ db, placement, now });
  const probe = probeWrite(placement);
  let databaseBytes = 0;

  return {
    users: createUserStore(context),
    orders: createOrderStore(context),
    bulk: createBulkStores(context),
    tokens: createTokenStore(context),
    changes: createChangeStore(context, numberChanges, watchChanges(db, numberChanges)),
    checkUsable: createWriteProbe(async () => {
      if (readOnly) await numberChanges();
      else await db.run("write", (session) => session.all(probe, now().toISOString()));
    }),
    archive: () => null,
    async statistics() {
      const measuring = db.run("background", async (session) => {
        databaseBytes = (await session.first<{ bytes: number }>(databaseSize))?.bytes ?? 0;
      });
      // On failure, the last known size: the other figures matter most while the database is unreachable.
      await Promise.race([measuring.catch(() => {}), Bun.sleep(SIZE_TIMEOUT_MS)]);
      return {
        pendingWrites: context.pendingWrites.count,
        databaseBytes,
        walBytes: 0,
        freeBytes: null,
        lastBackupS: null,
      };
    },
    withCopySource: (work) => withCopySource(db, placement, redactPassword(databaseUrl), work),
    check: () => checkDatabase(db, placement),
    deleteExpiredKeys: (signal) => deleteExpiredKeys(db, now(), signal),
    close: db.close,
  };
}
