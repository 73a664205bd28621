// Work that is shared and repeated: writes that share a statement, with a database whose statements the test ends.
import { expect, test } from "bun:test";
import { createContext } from "../../src/postgres/engine/context.ts";
import { createSingleFlight } from "../../src/postgres/engine/single-flight.ts";
import { createWriteQueue } from "../../src/postgres/engine/write-queue.ts";
import type { Database, Session } from "../../src/postgres/server/connection.ts";
import { oneServer } from "../../src/postgres/server/placement.ts";
import { runAgain, withRetry } from "../../src/postgres/server/retry.ts";
import { expectRejection } from "../support/expect-error.ts";
import { serverError } from "./server-error.ts";

interface Item {
  readonly author: null;
  readonly name: string;
  readonly row: string;
}

const lockTimeout = serverError("55P03");
const deadlock = serverError("40P01");
/** What Citus reports of a worker, also if it has just committed. */
const workerLost = serverError("XX000", { message: "server closed the connection unexpectedly" });

/** @param commitErrors those of the first commits */
function makeQueue({
  beforeWrite = [] as readonly string[],
  connections = 9,
  commitErrors = [] as readonly Error[],
} = {}) {
  const left = [...commitErrors];
  const runs: { names: string; lockTimeoutMs?: number; end(): void; fail(error: unknown): void }[] =
    [];
  let limits: { lockTimeoutMs?: number } = {};
  const db = {
    shares: { write: connections },
    async run(_kind, work, options = {}) {
      limits = options;
      const session = { script: async () => {} } as unknown as Session;
      return withRetry(async () => {
        const result = await work(session);
        const error = left.shift();
        if (error !== undefined) throw error;
        return result;
      }, options.mayRetry);
    },
  } as Database;
  const placement = { ...oneServer, beforeWrite };
  const context = createContext(db, placement, () => new Date(0));
  const write = createWriteQueue<Item, string>(context, {
    maxItems: 8,
    run(_session, items) {
      const { promise, resolve, reject } = Promise.withResolvers<(() => string)[]>();
      const names = items.map(({ name }) => name);
      const end = () => resolve(names.map((name) => () => name));
      runs.push({ names: names.join(""), ...limits, end, fail: reject });
      return promise;
    },
    conflictKeysOf: () => [],
    lockOf: ({ row }) => row,
  });
  return {
    runs,
    names: () => runs.map(({ names }) => names),
    pending: () => context.pendingWrites.count,
    write: (name: string, row = name) => write({ author: null, name, row }),
    /** Waits until this many statements have begun, and others that may begin have done so. */
    async begun(count: number) {
      while (runs.length < count) await Bun.sleep(1);
      for (let turn = 0; turn < 5; turn += 1) await Bun.sleep(2);
    },
  };
}

test.each([
  ["of one server has the timeout of the connection", [], undefined],
  ["of a cluster sets its timeout first", ["select 1"], 200],
])("a batch %s, and a write alone waits for a second", async (_what, beforeWrite, batchMs) => {
  const { runs, write, begun, pending } = makeQueue({ beforeWrite });
  const results = [write("a"), write("b")];
  await begun(1);
  expect([runs.length, runs[0]?.names, runs[0]?.lockTimeoutMs]).toEqual([1, "ab", batchMs]);
  runs[0]?.fail(lockTimeout);
  await begun(3);
  expect(runs.slice(1)).toMatchObject([
    { names: "a", lockTimeoutMs: 1_000 },
    { names: "b", lockTimeoutMs: 1_000 },
  ]);
  runs[1]?.fail(lockTimeout);
  runs[2]?.end();
  await expectRejection(results[0] as Promise<string>, "unavailable", "the database is busy");
  expect(await results[1]).toBe("b");
  expect([runs.length, pending()]).toEqual([3, 0]);
});

const inTransaction = ["select 1"];

test.each([
  ["run alone when a worker is lost before their commit", inTransaction, [["run", workerLost]], 2],
  [
    "run alone when a worker is lost before their commit, and an earlier one was rolled back",
    inTransaction,
    [
      ["commit", deadlock],
      ["run", workerLost],
    ],
    2,
  ],
  ["do not run again when it is lost at their commit", inTransaction, [["commit", workerLost]], 0],
  ["do not run again when each statement is committed on its own", [], [["run", workerLost]], 0],
] as const)("writes of a batch %s", async (_what, beforeWrite, failures, aloneCount) => {
  const commitErrors = failures.filter(([at]) => at === "commit").map(([, error]) => error);
  const { runs, names, write, begun } = makeQueue({ beforeWrite, commitErrors });
  const results = Promise.allSettled([write("a"), write("b")]);
  for (const [at, [place, error]] of failures.entries()) {
    await begun(at + 1);
    if (place === "commit") runs[at]?.end();
    else runs[at]?.fail(error);
  }
  await begun(failures.length + aloneCount);
  expect(names().slice(failures.length)).toEqual(["a", "b"].slice(0, aloneCount));
  const [ofA, ofB] = runs.slice(failures.length);
  ofA?.fail(workerLost);
  // Its worker is there.
  ofB?.end();
  const [a, b] = await results;
  expect(a).toMatchObject({ reason: { code: "unavailable", cause: workerLost } });
  expect(b?.status).toBe(aloneCount === 0 ? "rejected" : "fulfilled");
});

test("writes that run alone run one after the other when they need one row, and leave connections to batches", async () => {
  // Two of five: three are for batches.
  const { runs, names, write, begun } = makeQueue({ connections: 5 });
  const results = ["a", "b"].map((name) => write(name, "x"));
  results.push(...["c", "d"].map((name) => write(name)));
  await begun(1);
  runs[0]?.fail(lockTimeout);
  await begun(3);
  expect(names()).toEqual(["abcd", "a", "c"]);
  const later = write("e");
  await begun(4);
  expect(names().slice(3)).toEqual(["e"]);
  runs[1]?.end();
  await begun(5);
  expect(names().slice(4)).toHaveLength(1);
  runs[4]?.end();
  runs[2]?.end();
  await begun(6);
  for (const { end } of runs) end();
  expect(await Promise.all([...results, later])).toEqual(["a", "b", "c", "d", "e"]);
});

/** Work that fails with these errors, one after the other, and then succeeds. */
function fail(errors: readonly Error[], timeoutMs?: number): Promise<string> {
  const left = [...errors];
  const work = async () => {
    const error = left.shift();
    if (error !== undefined) throw error;
    return "done";
  };
  return withRetry(work, undefined, timeoutMs);
}

test("withRetry repeats work as often as it asks for, and rejects with unavailable when the server rolls back five attempts", async () => {
  const four = Array(4).fill(deadlock);
  expect(await fail([...Array(50).fill(runAgain), ...four])).toBe("done");
  await expectRejection(fail([...four, deadlock]), "unavailable");
});

test("withRetry rejects with the conflict or the error when the timeout has passed", async () => {
  await expectRejection(fail([runAgain], -1), "unavailable", /too much contention/);
  await expectRejection(fail([deadlock], -1), "unavailable");
});

test("work is shared by the calls of its key that come before it begins, and so is its failure", async () => {
  const share = createSingleFlight<string>();
  const runs: (PromiseWithResolvers<string> & { readonly key: string })[] = [];
  const call = (key: string) =>
    share(key, () => {
      const run = { ...Promise.withResolvers<string>(), key };
      runs.push(run);
      return run.promise;
    });
  const first = Promise.allSettled(["a", "a", "b", "a"].map(call));
  await Bun.sleep(0);
  // These may have to see what was committed since.
  const later = ["a", "a"].map(call);
  await Bun.sleep(0);
  expect(runs.map(({ key }) => key)).toEqual(["a", "b"]);
  const reason = new Error("failed");
  runs[0]?.reject(reason);
  runs[1]?.resolve("of b");
  const failed = { status: "rejected", reason } as const;
  expect(await first).toEqual([failed, failed, { status: "fulfilled", value: "of b" }, failed]);
  await Bun.sleep(0);
  expect(runs.map(({ key }) => key)).toEqual(["a", "b", "a"]);
  runs[2]?.resolve("of a");
  expect(await Promise.all(later)).toEqual(["of a", "of a"]);
});
