import { redactPassword } from "../database-url.ts";
import { createLargePages } from "../large-page.ts";
import type { OpenStore, Store, StoreOptions } from "../store.ts";
import { createWriteProbe } from "../write-probe.ts";
import { backUp } from "./backup.ts";
import { checkDatabase, plain_sections } from "./check.ts";
import { createCitusStores } from "./citus/stores.ts";
import { connect, type Database } from "./connection.ts";
import type { LayoutStores, StoreContext } from "./context.ts";
import { withCopySource } from "./copy-source.ts";
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

/** @param database_url named in messages for the operator */
function createPlainStores(context: StoreContext, database_url: string): LayoutStores {
  const { db, now } = context;
  return {
    users: createPlainUserStore(context),
    orders: createPlainOrderStore(context),
    bulk: createBulkStores(db, now),
    withCopySource: (work) => withCopySource(db, redactPassword(database_url), work),
    check: () => checkDatabase(db, plain_sections),
  };
}

/** Creates the store of a connected, migrated database. */
function createStore(db: Database, { database_url, now, max_unsent_bytes }: StoreOptions): Store {
  const large_pages = createLargePages(max_unsent_bytes);
  const context: StoreContext = { db, large_pages, runLocked: createLockedQueue(), now };
  let database_bytes = 0;

  async function measureSize(): Promise<void> {
    const row = await db.run("read", (session) => session.first<{ bytes: number }>(database_size));
    database_bytes = row?.bytes ?? 0;
  }

  return {
    ...(db.layout === "citus"
      ? createCitusStores(context, database_url)
      : createPlainStores(context, database_url)),
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
