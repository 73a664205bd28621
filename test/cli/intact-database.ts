import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import { PAGE_BYTES } from "../support/damage.ts";
import { fillDatabase } from "../support/fill.ts";
import { makeHarness } from "./harness.ts";

/**
 * Writes a backup with this number of users and of orders, and a token.
 * @returns its pages, without the checksum behind them, which would notice all damage first
 */
export async function writeIntact(path: string, records: number): Promise<Buffer> {
  using world = makeHarness();
  await fillDatabase(world.path, records, records);
  await world.run("token", "create", "a");
  expect((await world.run("backup", path)).code).toBe(0);
  const bytes = readFileSync(path);
  return bytes.subarray(0, bytes.length - (bytes.length % PAGE_BYTES));
}
