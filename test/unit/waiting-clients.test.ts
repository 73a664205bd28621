import { expect, test } from "bun:test";
import { yieldToEventLoop } from "../../src/base/event-loop.ts";
import { createWaitingClients } from "../../src/http/limits/waiting-clients.ts";

const PLACES = 12;
const drain = { isDraining: () => false, onStart() {} };

/** Tells its listeners of a change when the test says so. */
function makeFeed() {
  const listeners = new Set<() => void>();
  return {
    listeners,
    subscribe(listener: () => void) {
      listeners.add(listener);
      return { [Symbol.dispose]: () => void listeners.delete(listener) };
    },
    change() {
      for (const listener of listeners) listener();
    },
  };
}

/** Clients that wait for a change that does not come. */
function makeClients() {
  const clients = createWaitingClients(makeFeed(), drain, PLACES);
  const waiting = new Set<string>();
  return {
    waiting,
    /** @returns whether there is a place */
    begin(name: string): boolean {
      const [token = ""] = name;
      try {
        const client = clients.begin(token, 60, new AbortController().signal);
        waiting.add(name);
        void client.next().then(() => {
          waiting.delete(name);
          client[Symbol.dispose]();
        });
        return true;
      } catch (error) {
        expect(error).toMatchObject({
          code: "unavailable",
          message: "too many clients wait for changes",
        });
        return false;
      }
    },
    /** @returns how many clients of each token wait */
    async counts(): Promise<Record<string, number>> {
      await Bun.sleep(0);
      expect(clients.count()).toBe(waiting.size);
      const byToken = Object.groupBy(waiting, ([token = ""]) => token);
      return Object.fromEntries(
        Object.entries(byToken).map(([token, names]) => [token, names?.length ?? 0]),
      );
    },
  };
}

const names = (token: string, count: number) =>
  Array.from({ length: count }, (_, at) => `${token}${at}`);

test("a token gets all places when no other one waits", async () => {
  const clients = makeClients();
  expect(names("a", PLACES).map(clients.begin)).not.toContain(false);
  expect(clients.begin("a+")).toBe(false);
  expect(await clients.counts()).toEqual({ a: PLACES });
});

test("a third token gets a third of the places when two tokens have taken all of them", async () => {
  const clients = makeClients();
  for (const name of [...names("a", 6), ...names("b", 6)]) clients.begin(name);
  expect(names("c", 6).map(clients.begin)).toEqual([true, true, true, true, false, false]);
  expect(await clients.counts()).toEqual({ a: 4, b: 4, c: 4 });
  // Those that had waited longest made room.
  for (const name of ["a0", "a1", "b0", "b1"]) expect(clients.waiting.has(name)).toBe(false);
});

test("a client makes room only when its token keeps as many places as the other one gets", async () => {
  const clients = makeClients();
  for (const name of [...names("a", 5), ...names("b", 4), ...names("c", 3)]) clients.begin(name);
  // Otherwise the client that made room could take the place back, and so on.
  expect(clients.begin("b+")).toBe(false);
  expect(clients.begin("c+")).toBe(true);
  expect(clients.begin("a+")).toBe(false);
  expect(await clients.counts()).toEqual({ a: 4, b: 4, c: 4 });
});

test("each of many tokens keeps its place when all are taken", async () => {
  const clients = makeClients();
  const tokens = [..."abcdefghijkl"];
  expect(tokens.map(clients.begin)).not.toContain(false);
  expect(clients.begin("m")).toBe(false);
  expect(Object.keys(await clients.counts())).toEqual(tokens);
});

test("a change wakes 16 clients in each turn, and each of them once", async () => {
  const feed = makeFeed();
  const clients = createWaitingClients(feed, drain);
  const { signal } = new AbortController();
  let woken = 0;
  const waiting = Array.from({ length: 40 }, () => clients.begin("a", 60, signal));
  for (const client of waiting) void client.next().then(() => (woken += 1));
  const counts: number[] = [];
  feed.change();
  for (let turn = 0; turn < 4; turn += 1) {
    await Promise.resolve();
    await Promise.resolve();
    counts.push(woken);
    await yieldToEventLoop();
  }
  expect(counts).toEqual([16, 32, 40, 40]);
  for (const client of waiting) client[Symbol.dispose]();
});

test("a client learns of a change that came before it waited, and then waits for the next one", async () => {
  const feed = makeFeed();
  const { signal } = new AbortController();
  using client = createWaitingClients(feed, drain).begin("a", 60, signal);
  feed.change();
  expect(await client.next()).toBe(true);
  let hasNext = false;
  const next = client.next().then((result) => {
    hasNext = result;
  });
  await Bun.sleep(0);
  expect(hasNext).toBe(false);
  feed.change();
  await next;
  expect(hasNext).toBe(true);
});

test.each([
  ["the server shuts down", true, AbortSignal.any([])],
  ["its request is aborted", false, AbortSignal.abort()],
])("a client does not wait when %s", async (_when, isDraining, signal) => {
  const draining = { isDraining: () => isDraining, onStart() {} };
  using client = createWaitingClients(makeFeed(), draining).begin("a", 60, signal);
  expect(await client.next()).toBe(false);
});

test("clients share a subscription, which ends with the last of them", () => {
  const feed = makeFeed();
  const clients = createWaitingClients(feed, drain);
  for (let round = 0; round < 2; round += 1) {
    const [first, second] = ["a", "b"].map((token) =>
      clients.begin(token, 60, new AbortController().signal),
    );
    expect(feed.listeners.size).toBe(1);
    first?.[Symbol.dispose]();
    expect(feed.listeners.size).toBe(1);
    second?.[Symbol.dispose]();
    expect(feed.listeners.size).toBe(0);
  }
});
