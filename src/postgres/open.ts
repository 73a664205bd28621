import { shownDatabase } from "../config.ts";
import { createLargePages } from "../large-page.ts";
import { createProbe } from "../probe.ts";
import type { OpenStore, Store, StoreOptions } from "../store.ts";
import { backUp } from "./backup.ts";
import { checkDatabase } from "./check.ts";
import { connect, type Database } from "./connection.ts";
import { createKeys } from "./keys.ts";
import { migrate } from "./migrate.ts";
import { createOrderStore } from "./orders.ts";
import { operatorError } from "./reasons.ts";
import { readSnapshot } from "./snapshot.ts";
import { createTokenStore } from "./tokens.ts";
import { createOrderTransfer } from "./transfer.orders.ts";
import { createUserTransfer } from "./transfer.users.ts";
import { createUserStore } from "./users.ts";

/** How long the figures wait for the size: who collects them waits for ten seconds at most, as a rule. */
const SIZE_PATIENCE_MS = 1_000;

const write = `
  update user_api
  set probed_at = $1
`;
const size = "select pg_database_size(current_database())::float8 as bytes";

/** The store over a connected, migrated database. */
function createStore(
  db: Database,
  { database_url, now, postgres_layout = "plain", max_unsent_bytes }: StoreOptions,
): Store {
  const keys = createKeys(db, now);
  const large_pages = createLargePages(max_unsent_bytes);
  let database_bytes = 0;

  async function measureSize(): Promise<void> {
    const row = await db.read((session) => session.first<{ bytes: number }>(size));
    database_bytes = row?.bytes ?? 0;
  }

  return {
    users: createUserStore(db, keys, postgres_layout, large_pages, now),
    orders: createOrderStore(db, keys, postgres_layout, large_pages, now),
    tokens: createTokenStore(db, now),
    at_once: null,
    transfer: {
      users: createUserTransfer(db, now),
      orders: createOrderTransfer(db, now),
    },
    ping: createProbe({
      write: () => db.change((session) => session.all(write, now().toISOString())),
      isFull: db.gate.isFull,
    }),
    async statistics() {
      // Else what was last known: the other figures are needed most when the database is away.
      await Promise.race([measureSize().catch(() => {}), Bun.sleep(SIZE_PATIENCE_MS)]);
      return {
        pending_writes: db.gate.pending(),
        unsent_bytes: large_pages.unsentBytes(),
        database_bytes,
        log_bytes: 0,
      };
    },
    backUp,
    snapshot: (work) => readSnapshot(db, shownDatabase(database_url), work),
    check: () => checkDatabase(db, postgres_layout),
    sweep: keys.sweep,
    close: db.close,
  };
}

/** Any number of processes may have it open. @see OpenStore */
export const openPostgres: OpenStore = async (options) => {
  try {
    const db = connect(options);
    try {
      await migrate(db, options.postgres_layout ?? "plain", options.create);
      return createStore(db, options);
    } catch (error) {
      await db.close();
      throw error;
    }
  } catch (error) {
    throw operatorError(`Cannot open ${shownDatabase(options.database_url)}`, error);
  }
};
