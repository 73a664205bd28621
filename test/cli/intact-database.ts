import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import { PAGE_BYTES } from "../support/damage.ts";
import { lines, makeHarness } from "./harness.ts";

/**
 * Writes a backup with this number of users and of orders, and a token.
 * @returns its pages, without the checksum behind them, which would notice all damage first
 */
export async function writeIntact(path: string, records: number): Promise<Buffer> {
  using world = makeHarness();
  const numbers = Array.from({ length: records }, (_, index) => index);
  const users = numbers.map((n) => ({
    email: `${n}@b.cd`,
    metadata: { note: "n".repeat(n % 200) },
  }));
  const items = [{ sku: "A-1", quantity: 2, unit_price: 50 }];
  const orders = numbers.map((n) => ({
    user_id: 1 + (n % (records / 2)),
    currency: "EUR",
    reference: `${n}`,
    items,
  }));
  await world.feed(lines(users), "import", "users");
  await world.feed(lines(orders), "import", "orders");
  await world.run("token", "create", "a");
  expect((await world.run("backup", path)).code).toBe(0);
  const bytes = readFileSync(path);
  return bytes.subarray(0, bytes.length - (bytes.length % PAGE_BYTES));
}
