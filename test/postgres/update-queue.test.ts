import { expect, test } from "bun:test";
import { AppError } from "../../src/error.ts";
import type { Database } from "../../src/postgres/connection.ts";
import { createContext } from "../../src/postgres/context.ts";
import { createLimiter } from "../../src/postgres/limiter.ts";
import { withRetry } from "../../src/postgres/retry.ts";
import {
  createUpdateQueue,
  type Target,
  type UpdateParts,
} from "../../src/postgres/update-queue.ts";
import { expectRejection } from "../expect-error.ts";
import { lockTimeout, serverError } from "./server-error.ts";

interface Stored {
  readonly id: number;
}

interface Values {
  readonly name: string;
}

const foreignKeyViolation = serverError("23503");
const connectionLost = serverError("08006");

interface Options {
  readonly missing?: readonly number[];
  /** Called before each write. @returns ids of records that it does not write. @throws the error of the statement */
  readonly onWrite?: (ids: readonly number[]) => readonly number[];
  readonly explain?: UpdateParts<Stored, Values>["explain"];
}

function makeQueue({ missing = [], onWrite = () => [], explain }: Options = {}) {
  const calls: string[] = [];
  const limiter = createLimiter({ connections: 10 });
  const runAdmitted = (_access: string, work: (session: unknown) => Promise<unknown>) =>
    withRetry(() => work(null));
  const db = { layout: "plain", limiter, runAdmitted } as unknown as Database;
  const context = createContext({ db, now: () => new Date(0) });

  async function write(kind: string, targets: readonly Target<Stored>[], timeout: string | null) {
    const ids = targets.map(({ stored }) => stored.id);
    calls.push(`${kind} ${ids.join()} ${timeout ?? "alone"}`);
    const left = onWrite(ids);
    return ids.filter((id) => !left.includes(id));
  }
  const runUpdate = createUpdateQueue<Stored, Values, Stored>(context, {
    table: "users",
    async read(_session, ids) {
      calls.push(`read ${ids.join()}`);
      return new Map(ids.filter((id) => !missing.includes(id)).map((id) => [id, { id }]));
    },
    update: (_session, targets, timeout) => write("update", targets, timeout),
    remove: (_session, targets, timeout) => write("remove", targets, timeout),
    ...(explain !== undefined && { explain }),
  });
  const textOf = (id: number, json: string) => ({ id, version: 2, json });
  return {
    calls,
    update: (id: number, { mayWait = false, error = null as Error | null } = {}) =>
      runUpdate(id, null, () => {
        if (error !== null) throw error;
        return { kind: "update", values: { name: "" }, record: textOf(id, "updated"), mayWait };
      }),
    remove: (id: number) =>
      runUpdate(id, null, () => ({ kind: "remove", record: textOf(id, "removed") })),
  };
}

const idsOf = async (results: readonly Promise<{ readonly id: number } | null>[]) =>
  (await Promise.all(results)).map((record) => record?.id ?? null);

test("updates and deletes share a read, and each kind a write", async () => {
  const { calls, update, remove } = makeQueue({ missing: [4] });
  const results = [update(1), remove(2), update(3), update(4)];
  const rejected = update(5, { error: new AppError("version_mismatch", "") });
  await expectRejection(rejected, "version_mismatch");
  expect(await idsOf(results)).toEqual([1, 2, 3, null]);
  expect(calls).toEqual(["read 1,2,3,4,5", "update 1,3 200ms", "remove 2 200ms"]);
});

test("updates of one record run one after the other", async () => {
  const { calls, update, remove } = makeQueue();
  expect(await idsOf([update(1), update(1), remove(1), update(2)])).toEqual([1, 1, 1, 2]);
  expect(calls.filter((call) => !call.startsWith("read"))).toEqual([
    "update 1,2 200ms",
    "update 1 200ms",
    "remove 1 200ms",
  ]);
});

test("an update that was not written is read again and runs alone, and the next of its record waits for it", async () => {
  let conflicts = 2;
  const onWrite = (ids: readonly number[]) => {
    if (!ids.includes(1) || conflicts === 0) return [];
    conflicts -= 1;
    return [1];
  };
  const { calls, update, remove } = makeQueue({ onWrite });
  expect(await idsOf([update(1), update(2), remove(1)])).toEqual([1, 2, 1]);
  expect(calls).toEqual([
    ...["read 1,2", "update 1,2 200ms", "read 1", "update 1 alone", "read 1", "update 1 alone"],
    ...["read 1", "remove 1 200ms"],
  ]);
});

test.each([
  ["fails", foreignKeyViolation],
  ["waits too long for a row", lockTimeout],
])(
  "if a batch %s, each of its updates runs alone, and only the one that fails is rejected",
  async (_, cause) => {
    const { calls, update, remove } = makeQueue({
      onWrite(ids) {
        if (ids.includes(3)) throw cause;
        return [];
      },
      explain(error) {
        if (error === cause) throw new AppError("user_has_orders", "");
      },
    });
    const results = [update(1), remove(2), remove(3)];
    await expectRejection(results[2] as Promise<unknown>, "user_has_orders");
    expect(await idsOf(results.slice(0, 2))).toEqual([1, 2]);
    expect(calls.slice(0, 3)).toEqual(["read 1,2,3", "update 1 200ms", "remove 2,3 200ms"]);
    expect(calls.slice(3).toSorted()).toEqual([
      ...["read 2", "read 3", "remove 2 alone", "remove 3 alone"],
    ]);
  },
);

test("nothing runs again after the connection was lost", async () => {
  const { calls, update } = makeQueue({
    onWrite() {
      throw connectionLost;
    },
  });
  const results = [update(1), update(2)];
  for (const result of results) await expectRejection(result, "unavailable");
  expect(calls).toEqual(["read 1,2", "update 1,2 200ms"]);
});

test("an update that may wait shares no write", async () => {
  const { calls, update } = makeQueue();
  expect(await idsOf([update(1), update(2, { mayWait: true })])).toEqual([1, 2]);
  expect(calls).toEqual(["read 1,2", "update 1 200ms", "read 2", "update 2 alone"]);
});

test("a batch has at most 64 updates", async () => {
  const { calls, update } = makeQueue();
  await Promise.all(Array.from({ length: 65 }, (_, id) => update(id)));
  const sizes = calls
    .filter((call) => call.startsWith("read"))
    .map((call) => call.split(",").length);
  expect(sizes).toEqual([64, 1]);
});
