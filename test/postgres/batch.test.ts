import { afterAll, beforeEach, expect, spyOn, test } from "bun:test";
import { type BatchOptions, createBatchQueue } from "../../src/postgres/engine/batch.ts";
import { expectRejection } from "../support/expect-error.ts";

/** However slow the machine is, a batch waits for the one that is running, and for more items. */
let nowMs = 0;
const clock = spyOn(performance, "now").mockImplementation(() => nowMs);
beforeEach(() => {
  nowMs = 0;
});
afterAll(() => clock.mockRestore());

type Results = readonly (string | Promise<string>)[];

/** A queue of texts, whose batches end when the test ends them. */
function makeQueue(options: Partial<BatchOptions<string, string>> = {}) {
  const batches: { items: readonly string[]; end: (results: Results) => void; fail: () => void }[] =
    [];
  const run = createBatchQueue<string, string>({
    maxItems: 10,
    maxBatches: 1,
    clientOf: () => null,
    ...options,
    run(items) {
      const { promise, resolve, reject } = Promise.withResolvers<Results>();
      batches.push({ items, end: resolve, fail: () => reject(new Error("lost")) });
      return promise;
    },
  });
  /** Items that a test leaves in the queue are rejected when they have waited too long. */
  const enqueue = (item: string) => {
    const result = run(item);
    result.catch(() => {});
    return result;
  };
  return { batches, enqueue, items: () => batches.map(({ items }) => items.join("")) };
}

const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

/** Enough turns for the next batch to start, but less time than it waits for one that takes long. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await nextTurn();
}

const ofLetter = { clientOf: (item: string) => item.toLowerCase() };

const two = { maxItems: 2, maxBatches: 2 };
const ofOne = { isOfOneClient: true, ...ofLetter };

/** Steps: a letter arrives; `.` is a turn, and a space enough turns for the next batch; a digit is the end of that batch. */
test.each<[what: string, steps: string, batches: string, Partial<BatchOptions<string, string>>]>([
  ["items that arrive in one turn together", "ab ", "ab", {}],
  ["items that arrive while a batch is running together", "a b c 0 ", "a bc", {}],
  ["an item at the end of a batch with those that wait", "a b 0c ", "a bc", {}],
  ["more items with each turn together", "ab.c.d.e ", "abcde", {}],
  ["an item that missed a batch of several with those of the next turn", "ab c 0..d ", "ab cd", {}],
  ["an item that is alone again without a wait", "a 0 b..c ", "a b", {}],
  ["another batch when as many items wait as one can have", "a bcd ", "a bc", two],
  ["clients by turns", "aAaAabac 0 1 ", "abc AaA aa", { maxItems: 3, ...ofLetter }],
  ["the items of one client together when a batch is of one", "abA 0 ", "aA b", ofOne],
])("enqueue runs %s", async (_what, steps, expected, options) => {
  const { batches, enqueue, items } = makeQueue(options);
  for (const step of steps) {
    if (step === ".") await nextTurn();
    else if (step === " ") await turns();
    else if (/\d/.test(step)) batches[Number(step)]?.end(batches[Number(step)]?.items ?? []);
    else enqueue(step);
  }
  expect(items().join(" ")).toBe(expected);
});

test("enqueue starts a batch after some time when every turn brings more items", async () => {
  const { enqueue, items } = makeQueue({ maxItems: Number.POSITIVE_INFINITY });
  enqueue("a");
  while (items().length === 0) {
    enqueue("b");
    nowMs += 1;
    await nextTurn();
  }
});

test("enqueue does not wait for a batch when it takes long", async () => {
  const { batches, enqueue, items } = makeQueue({ maxBatches: 2 });
  enqueue("a");
  await turns();
  enqueue("b");
  nowMs = 5;
  while (items().length < 2) await Bun.sleep(1);
  enqueue("c");
  nowMs = 10;
  await Bun.sleep(20);
  expect(items()).toEqual(["a", "b"]);
  batches[1]?.end(["2"]);
  await turns();
  expect(items()).toEqual(["a", "b", "c"]);
});

test("enqueue rejects all items of a batch when it fails, and runs the next ones", async () => {
  const { batches, enqueue, items } = makeQueue({ conflictKeysOf: (item) => [item] });
  const results = Promise.allSettled(["a", "b"].map(enqueue));
  await turns();
  const next = enqueue("a");
  batches[0]?.fail();
  expect((await results).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await turns();
  expect(items()).toEqual(["ab", "a"]);
  batches[1]?.end(["1"]);
  expect(await next).toBe("1");
});

test("enqueue rejects an item when it waits too long, and never runs it", async () => {
  const { batches, enqueue, items } = makeQueue();
  const slow = enqueue("a");
  await turns();
  const late = enqueue("b");
  nowMs = 5_000;
  await expectRejection(late, "unavailable", "the database is busy");
  batches[0]?.end(["1"]);
  expect(await slow).toBe("1");
  await turns();
  expect(items()).toEqual(["a"]);
});
