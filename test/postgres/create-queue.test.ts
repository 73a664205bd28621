import { expect, test } from "bun:test";
import type { Database } from "../../src/postgres/connection.ts";
import { createContext } from "../../src/postgres/context.ts";
import {
  type CreateQueueOptions,
  createCreateQueue,
  type Outcome,
  type PendingCreate,
} from "../../src/postgres/create-queue.ts";
import { createLimiter } from "../../src/postgres/limiter.ts";
import { BATCH_LOCK_TIMEOUT } from "../../src/postgres/row-locks.ts";
import { lockTimeout } from "./server-error.ts";

/** A record that refers to a row. */
interface Fields {
  readonly name: string;
  readonly row: string;
  readonly text?: string;
}

/** A transaction that the test ends. */
interface Run {
  /** Names of the records. */
  readonly names: string;
  readonly lockTimeout: string | null;
  /** The records are created, apart from those with another outcome. */
  create(others?: Readonly<Record<string, Outcome<Fields>>>): void;
  fail(error: unknown): void;
}

function makeQueue(options: Partial<CreateQueueOptions<Fields, Fields>> = {}) {
  const runs: Run[] = [];
  const db = { limiter: createLimiter({ connections: 10 }) } as Database;
  const context = createContext({ db, now: () => new Date(0) });
  const create = createCreateQueue<Fields, Fields>(context, {
    conflictKeysOf: () => [],
    lockOf: ({ row }) => row,
    throwRejected() {
      throw new Error("rejected");
    },
    mayBeCausedByOneItem: () => true,
    nextBatchMs: 0,
    run: (creates: readonly PendingCreate<Fields>[], lockTimeout) =>
      new Promise((resolve, reject) => {
        const names = creates.map(({ fields }) => fields.name);
        runs.push({
          names: names.join(""),
          lockTimeout,
          create: (others = {}) =>
            resolve(
              names.map((name): Outcome<Fields> => {
                const record = { id: 1, version: 1, json: name };
                return others[name] ?? { kind: "created", record };
              }),
            ),
          fail: reject,
        });
      }),
    ...options,
  });
  return {
    runs,
    names: () => runs.map(({ names }) => names),
    /** Waits until this many have started, and others that may start have done so. */
    async started(count: number) {
      while (runs.length < count) await Bun.sleep(1);
      for (let turn = 0; turn < 5; turn += 1) await Bun.sleep(0);
    },
    /** @returns the text of the created record */
    create: async (name: string, row: string, text = "") =>
      (await create({ name, row, text }, null, null)).record.json,
  };
}

test("each create of a batch runs alone, with the lock timeout of the connection, when the batch has timed out", async () => {
  const { runs, create, started } = makeQueue({ mayBeCausedByOneItem: () => false });
  const created = create("a", "x");
  await started(1);
  expect(runs[0]?.lockTimeout).toBe(BATCH_LOCK_TIMEOUT);
  runs[0]?.fail(lockTimeout);
  await started(2);
  expect(runs[1]?.lockTimeout).toBeNull();
  runs[1]?.fail(lockTimeout);
  expect(await created.catch((error: unknown) => error)).toBe(lockTimeout);
  expect(runs).toHaveLength(2);
});

test("a create that is undecided runs alone, and the rest of its batch is created", async () => {
  const { runs, create, started } = makeQueue();
  const [undecided, other] = [create("a", "x"), create("b", "y")];
  await started(1);
  runs[0]?.create({ a: { kind: "undecided" } });
  expect(await other).toBe("b");
  await started(2);
  expect([runs[1]?.names, runs[1]?.lockTimeout]).toEqual(["a", null]);
  runs[1]?.create();
  expect(await undecided).toBe("a");
});

test("creates that run alone run one after the other when they need one row", async () => {
  const { runs, names, create, started } = makeQueue();
  const created = [create("a", "x"), create("b", "x"), create("c", "y")];
  await started(1);
  runs[0]?.fail(lockTimeout);
  await started(3);
  expect(names()).toEqual(["abc", "a", "c"]);
  runs[1]?.create();
  await started(4);
  expect(names()).toEqual(["abc", "a", "c", "b"]);
  for (const { create: end } of runs) end();
  expect(await Promise.all(created)).toEqual(["a", "b", "c"]);
});

test("a create runs again when its key has changed meanwhile", async () => {
  const { runs, names, create, started } = makeQueue();
  const created = create("a", "x");
  await started(1);
  runs[0]?.create({ a: { kind: "conflict" } });
  await started(2);
  expect(names()).toEqual(["a", "a"]);
  runs[1]?.create();
  expect(await created).toBe("a");
});

test("a batch has at most 256 creates, and at most 512 Ki characters if it has several", async () => {
  const { runs, create, started } = makeQueue();
  const many = Array.from({ length: 257 }, () => create(".", "x"));
  await started(2);
  expect(runs.map(({ names }) => names.length)).toEqual([256, 1]);
  for (const { create: end } of runs) end();
  await Promise.all(many);
  runs.length = 0;
  // The name and the row count as well.
  const large = [2 ** 18 - 2, 2 ** 18 - 2, 2 ** 20].map((length) =>
    create(".", "x", "a".repeat(length)),
  );
  await started(2);
  expect(runs.map(({ names }) => names.length)).toEqual([2, 1]);
  for (const { create: end } of runs) end();
  await Promise.all(large);
});

test("at most three batches run at the same time", async () => {
  const { runs, names, create, started } = makeQueue();
  const created: Promise<string>[] = [];
  for (const name of "abcd") {
    created.push(create(name, "x"));
    await started(Math.min(created.length, 3));
  }
  expect(names()).toEqual(["a", "b", "c"]);
  runs[1]?.create();
  await started(4);
  expect(names()).toEqual(["a", "b", "c", "d"]);
  for (const { create: end } of runs) end();
  await Promise.all(created);
});
