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
import { ROW_LOCK_TIMEOUT } from "../../src/postgres/row-locks.ts";
import { rowLockTimeout } from "./server-error.ts";

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
  const context = createContext({ db, largePages: {} as never, now: () => new Date(0) });
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

test("creates of a row that was locked share a batch again when the first of them has ended", async () => {
  const { runs, names, create, started } = makeQueue();
  const first = create("a", "x");
  await started(1);
  runs[0]?.fail(rowLockTimeout);
  await started(2);
  runs[1]?.create();
  expect(await first).toBe("a");
  const later = ["b", "c"].map((name) => create(name, "x"));
  await started(3);
  expect(names()).toEqual(["a", "a", "bc"]);
  runs[2]?.create();
  expect(await Promise.all(later)).toEqual(["b", "c"]);
});

test("a create that is alone waits for its row, apart from the others, when its batch has timed out", async () => {
  const { runs, create, started } = makeQueue({ mayBeCausedByOneItem: () => false });
  const created = create("a", "x");
  for (let attempt = 0; attempt < 2; attempt += 1) {
    await started(attempt + 1);
    expect(runs[attempt]?.lockTimeout).toBe(ROW_LOCK_TIMEOUT);
    runs[attempt]?.fail(rowLockTimeout);
  }
  await started(3);
  expect(runs).toHaveLength(3);
  expect(runs[2]?.lockTimeout).toBeNull();
  runs[2]?.create();
  expect(await created).toBe("a");
});

test("creates that run alone run one after the other when they need one row", async () => {
  const { runs, names, create, started } = makeQueue();
  const created = [create("a", "x"), create("b", "x"), create("c", "y")];
  await started(1);
  runs[0]?.fail(rowLockTimeout);
  await started(3);
  expect(names()).toEqual(["abc", "a", "c"]);
  runs[1]?.create();
  await started(4);
  expect(names()).toEqual(["abc", "a", "c", "b"]);
  for (const { create: end } of runs) end();
  expect(await Promise.all(created)).toEqual(["a", "b", "c"]);
});

test("a create runs alone at once when others of its row do so, and others share a batch", async () => {
  const { runs, names, create, started } = makeQueue();
  const created = [create("a", "x"), create("b", "x")];
  await started(1);
  runs[0]?.fail(rowLockTimeout);
  await started(2);
  created.push(create("c", "x"), create("d", "y"), create("e", "z"));
  await started(3);
  expect(names()).toEqual(["ab", "a", "de"]);
  for (const [at, count] of [4, 4, 5, 5].entries()) {
    runs[1 + at]?.create();
    await started(count);
  }
  expect(names()).toEqual(["ab", "a", "de", "b", "c"]);
  expect(await Promise.all(created)).toEqual(["a", "b", "c", "d", "e"]);
});

test("a create whose row is locked waits for it, and the rest of its batch is created", async () => {
  const { runs, create, started } = makeQueue();
  const [locked, free] = [create("a", "x"), create("b", "y")];
  await started(1);
  runs[0]?.create({ a: { kind: "locked" } });
  expect(await free).toBe("b");
  await started(2);
  expect([runs[1]?.names, runs[1]?.lockTimeout]).toEqual(["a", null]);
  runs[1]?.create();
  expect(await locked).toBe("a");
});

test("locked rows take turns when creates wait for more of them than may wait at the same time", async () => {
  const { runs, names, create, started } = makeQueue();
  const created = [..."aabbc"].map((row, at) => create(`${row}${at}`, row));
  await started(1);
  const locked = { kind: "locked" } as const;
  runs[0]?.create({ a0: locked, a1: locked, b2: locked, b3: locked, c4: locked });
  for (let at = 1; at <= 5; at += 1) {
    await started(Math.min(at + 2, 6));
    expect(runs).toHaveLength(Math.min(at + 2, 6));
    runs[at]?.create();
  }
  await Promise.all(created);
  expect(names().slice(1)).toEqual(["a0", "b2", "c4", "a1", "b3"]);
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
