import { redactPassword } from "../base/database-url.ts";
import { AppError } from "../base/error.ts";
import { createWriteProbe } from "../base/write-probe.ts";
import type { Store, StoreOptions } from "../domain/store.ts";
import { createContext } from "./engine/context.ts";
import { createSingleFlight } from "./engine/single-flight.ts";
import { BATCH_LOCK_TIMEOUT_MS, type Database, longTransaction } from "./server/connection.ts";
import { sqlState } from "./server/errors.ts";
import type { Placement } from "./server/placement.ts";
import { requireAllRows } from "./server/trust.ts";
import { createChangeStore } from "./tables/changes.ts";
import { deleteExpiredKeys } from "./tables/idempotency.ts";
import { createNumbering } from "./tables/numbering.ts";
import { createOrderStore } from "./tables/orders.ts";
import { createSumOrders } from "./tables/sums.ts";
import { createTokenStore } from "./tables/tokens.ts";
import { createUserStore } from "./tables/users.ts";
import { findProblems } from "./whole/check.ts";
import { withCopySource } from "./whole/copy.ts";
import { createBulkStores } from "./whole/import.ts";

/** How long `statistics` waits for the size of the database. Prometheus times out after 10 s by default. */
const SIZE_TIMEOUT_MS = 1_000;
/** Time that a command has to number its changes when it ends. The next server numbers those that are left. */
const NUMBERING_TIMEOUT_MS = 5_000;

const DISK_FULL = "53100";
const PERMISSION_DENIED = "42501";

/** The function tests that the session can load PL/pgSQL; the sequence is missing if the tables were distributed meanwhile. */
const probeWrite = ({ orderIds }: Placement) => `
  update user_api
  set probed_at = $1::text
  where feed_origin() is not null
    and (select last_value from ${orderIds}) > 0
`;
/** Creates files, because the update above fits into the page that is there, and other writes may not. It has no rows. */
const probeSpace = "truncate feed_lock";
const replaceResults = "update idempotency_keys set record = $2::text where user_id = $1::bigint";
const databaseSize = "select pg_catalog.pg_database_size(pg_catalog.current_database()) as bytes";

export function createStore(db: Database, placement: Placement, options: StoreOptions): Store {
  const { databaseUrl, now } = options;
  const readOnly = options.mode === "serve-read-only";
  const numberChanges = createNumbering(db, readOnly);
  async function numberAll(): Promise<void> {
    while ((await numberChanges().catch(() => null))?.isBehind);
  }
  const context = createContext(db, placement, now);
  const probe = probeWrite(placement);
  let isFull = false;
  db.onError((error) => {
    if (sqlState(error) === DISK_FULL) isFull = true;
  });

  async function write(): Promise<void> {
    await db.run("write", (session) => session.all(probe, now().toISOString()));
    if (!isFull) return;
    isFull = false;
    const limits = { lockTimeoutMs: BATCH_LOCK_TIMEOUT_MS };
    try {
      await db.run("write", (session) => session.script(probeSpace), limits);
    } catch (error) {
      // There may still be no space if the failure can pass, as a lock of pg_dump. A missing permission would stay for ever.
      isFull ||= error instanceof AppError && sqlState(error) !== PERMISSION_DENIED;
      throw error;
    }
  }

  let databaseBytes = 0;
  const share = createSingleFlight<void>();
  const measure = () =>
    db.run("background", async (session) => {
      databaseBytes = (await session.first<{ bytes: number }>(databaseSize))?.bytes ?? 0;
    });

  return {
    users: createUserStore(context),
    orders: createOrderStore(context),
    sumOrders: createSumOrders(db),
    bulk: createBulkStores(context),
    tokens: createTokenStore(context),
    changes: createChangeStore(context, numberChanges),
    checkUsable: createWriteProbe(async () => {
      await db.run("read", requireAllRows);
      if (readOnly) await numberChanges();
      else await write();
    }),
    archive: () => null,
    isPrimary: () => !readOnly,
    secondsBehind: () => null,
    async statistics() {
      const measuring = share("", measure);
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
    check: () => db.run("read", (session) => findProblems(session, placement), longTransaction),
    deleteExpiredKeys: (before) => deleteExpiredKeys(db, before),
    async replaceResults({ id, json }) {
      await db.run("write", (session) => session.all(replaceResults, id, json));
    },
    async close() {
      // Each list reads the changes without an id, and without a server nothing numbers them.
      if (options.mode === "write")
        await Promise.race([numberAll(), Bun.sleep(NUMBERING_TIMEOUT_MS)]);
      await db.close();
    },
  };
}
