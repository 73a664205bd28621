import { redactPassword } from "../base/database-url.ts";
import { fail } from "../base/error.ts";
import type { ImportResult } from "../domain/bulk.ts";
import { invalidValue } from "../domain/config.ts";
import { formatCount, formatNumber } from "./count-text.ts";
import { type DemoCounts, demoOrder, demoUser } from "./demo-data.ts";
import { type CommandSystem, withStore } from "./files/system.ts";

const MAX_RECORDS = 10_000_000;
/** Records per transaction. */
const BATCH_RECORDS = 5000;

/** @throws {AppError} usage */
function readCount(flag: string, text: string, minimum: number): number {
  const count = /^\d{1,8}$/.test(text) ? Number(text) : Number.NaN;
  if (count >= minimum && count <= MAX_RECORDS) return count;
  const range = `an integer from ${minimum} to ${formatNumber(MAX_RECORDS)}`;
  return fail("usage", invalidValue(flag, text, `must be ${range}`));
}

/** Stores records in batches. @throws {AppError} operator if a record is rejected */
async function storeRecords<Row>(
  count: number,
  create: (id: number) => Row,
  importBatch: (batch: readonly Row[]) => Promise<readonly ImportResult[]>,
): Promise<void> {
  for (let first = 1; first <= count; first += BATCH_RECORDS) {
    const length = Math.min(BATCH_RECORDS, count - first + 1);
    const batch = Array.from({ length }, (_, index) => create(first + index));
    for (const result of await importBatch(batch)) {
      if (result.outcome !== "created")
        fail("operator", "Cannot seed: another process has written");
    }
  }
}

/**
 * Fills an empty database with demo data.
 * @throws {AppError} operator if the database is not empty or cannot be written
 */
export async function seedStore(
  system: CommandSystem,
  options: Readonly<Record<keyof DemoCounts, string>>,
): Promise<void> {
  const users = readCount("--users", options.users, 1);
  const orders = readCount("--orders", options.orders, 0);
  await withStore(system, { create: true }, async (store, { databaseUrl }) => {
    // An order needs a user.
    const { total } = await store.users.list({ limit: 1, offset: 0 });
    if (total > 0) fail("operator", `Cannot seed ${redactPassword(databaseUrl)}: it is not empty`);
    const counts = { users, orders };
    const { bulk } = store;
    await storeRecords(users, (id) => demoUser(id, counts), bulk.users.import);
    await storeRecords(orders, (id) => demoOrder(id, counts), bulk.orders.import);
  });
  system.stderr(`Created ${formatCount(users, "user")} and ${formatCount(orders, "order")}\n`);
}
