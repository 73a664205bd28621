import { expect, test } from "bun:test";
import { yieldToEventLoop } from "../../src/base/event-loop.ts";
import { createWaitingClients } from "../../src/http/limits/waiting-clients.ts";

const never = new AbortController().signal;
const drain = { signal: never };
const valid = () => {};

function makeFeed() {
  const listeners = new Set<() => void>();
  return {
    subscribe(listener: () => void) {
      listeners.add(listener);
      return { [Symbol.dispose]: () => void listeners.delete(listener) };
    },
    change() {
      for (const listener of listeners) listener();
    },
  };
}

test("a client learns of a change that came before it waited, and then waits for the next one", async () => {
  const feed = makeFeed();
  using client = createWaitingClients(feed.subscribe, drain).begin("a", 60, never);
  feed.change();
  expect(await client.next(valid)).toBe(true);
  const next = client.next(valid);
  await Bun.sleep(0);
  expect(Bun.peek.status(next)).toBe("pending");
  feed.change();
  expect(await next).toBe(true);
});

test.each([
  ["the server shuts down", AbortSignal.abort(), never],
  ["its request is aborted", never, AbortSignal.abort()],
])("a client does not wait when %s", async (_when, signal, ofRequest) => {
  using client = createWaitingClients(makeFeed().subscribe, { signal }).begin("a", 60, ofRequest);
  expect(await client.next(valid)).toBe(false);
});

test("clients continue in few turns when their page is the same and sent quickly, or the server shuts down", async () => {
  const feed = makeFeed();
  const shutdown = new AbortController();
  let [timeMs, sendingMs] = [0, 0];
  const waiting = createWaitingClients(feed.subscribe, shutdown, () => timeMs);
  let made = 0;
  async function make() {
    made += 1;
    if (made === 3) shutdown.abort();
    return { isEmpty: false, page: made };
  }
  async function wait(name: string): Promise<number | false> {
    using client = waiting.begin(name, 60, never);
    if (!(await client.next(valid))) return false;
    const { page } = await waiting.share(name, "page", make);
    timeMs += sendingMs;
    return page;
  }
  for (const received of [[1], [2], [3, false], [false]] as (number | false)[][]) {
    sendingMs = received[0] === 2 ? 1 : 0;
    const clients = Promise.all(Array.from({ length: 400 }, (_, id) => wait(`client-${id}`)));
    feed.change();
    let turns = 0;
    for (; Bun.peek.status(clients) === "pending"; turns += 1) await yieldToEventLoop();
    expect([turns < 9, ...new Set(await clients)]).toEqual([sendingMs === 0, ...received]);
  }
});

test("clients share a page when their tokens are read from the database before", async () => {
  const feed = makeFeed();
  const waiting = createWaitingClients(feed.subscribe, drain, () => 0);
  const read = Promise.withResolvers<void>();
  let made = 0;
  const clients = Array.from({ length: 12 }, async () => {
    using client = waiting.begin("a", 60, never);
    await client.next(() => read.promise);
    await waiting.share("a", "page", async () => {
      made += 1;
      return { isEmpty: false };
    });
  });
  feed.change();
  for (let turn = 0; turn < 20; turn += 1) await yieldToEventLoop();
  read.resolve();
  await Promise.all(clients);
  expect(made).toBe(1);
});
