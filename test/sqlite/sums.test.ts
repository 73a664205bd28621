import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { connect } from "../../src/sqlite/file/connection.ts";
import { createSums, createSumsService } from "../../src/sqlite/tables/sums.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";
import { fillDatabase } from "../support/fill.ts";
import { makePath, openDatabase, query } from "./open-database.ts";

const bounds = ["2026-01-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z"];

test("sums are unavailable while 64 MiB of the write-ahead log are not in the database", async () => {
  const { path } = makePath();
  await fillDatabase(path, 1, 3);
  await using _store = await openDatabase(path);
  let pages = 16_000;
  const file = { path, atRest: false, connect: () => connect(path), requireUnchanged() {} };
  const sums = createSums(file, () => pages);
  expect(JSON.parse(await sums.sumOrders(bounds))).toMatchObject([{ orders: 3, total: 7500 }]);
  // The next sum starts a thread, when this one has ended.
  await sums.close();
  while ((await sums.sumOrders(bounds).catch(() => null)) === null) await Bun.sleep(1);
  pages += 1;
  await expectRejection(sums.sumOrders(bounds), "unavailable", /log is too large/);
  await sums.close();
});

test("a sum ends without a snapshot when the store is closed or after 30 s, and other errors do not end the thread", async () => {
  const { directory, path } = makePath();
  await fillDatabase(path, 1, 10_001);
  await using _store = await openDatabase(path);
  const replies: unknown[] = [];
  const handle = createSumsService((reply) => void replies.push(reply));
  const task = { path, atRest: false, bounds };
  handle({ ...task, path: directory.at("missing.db") });
  handle(task);
  while (replies.length < 1) await Bun.sleep(0);
  handle("close");
  while (replies.length < 2) await Bun.sleep(0);
  expect(replies).toMatchObject([
    { code: "unavailable", message: "the database cannot be read at the moment" },
    { code: "unavailable", message: "the store is closed" },
  ]);
  expect(query(path, "pragma wal_checkpoint(truncate)")[0]).toBe(0);
  /** @param times at the start, and before each turn */
  async function replyAt(...times: number[]): Promise<unknown> {
    const { promise, resolve } = Promise.withResolvers<unknown>();
    createSumsService(resolve, () => times.shift() ?? Number.NaN)({ path, atRest: false, bounds });
    return await promise;
  }
  expect(await replyAt(5, 5, 30_005)).toMatch('"orders":10001');
  const message = "the sum takes longer than 30 s";
  expect(await replyAt(5, 5, 30_006)).toMatchObject({ code: "unavailable", message });
});

test.if(process.platform === "linux")("only the thread for sums yields to all others", async () => {
  using directory = makeDirectory();
  await using _store = await openDatabase(directory.at("a.db"));
  async function policyOf(thread: string): Promise<string | undefined> {
    // One may have ended.
    const stat = await readFile(`/proc/self/task/${thread}/stat`, "utf8").catch(() => "");
    return stat.split(") ")[1]?.split(" ")[38];
  }
  const policies = await Promise.all(readdirSync("/proc/self/task").map(policyOf));
  expect(policies).toContain("5");
  expect(await policyOf(`${process.pid}`)).toBe("0");
});
