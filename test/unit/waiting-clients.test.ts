import { expect, test } from "bun:test";
import { createWaitingClients } from "../../src/http/limits/waiting-clients.ts";

const never = new AbortController().signal;
const drain = { signal: never };

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

test("a client learns of a change that came before it waited, and then waits for the next one", async () => {
  const feed = makeFeed();
  using client = createWaitingClients(feed.subscribe, drain).begin("a", 60, never);
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
  ["the server shuts down", AbortSignal.abort(), never],
  ["its request is aborted", never, AbortSignal.abort()],
])("a client does not wait when %s", async (_when, signal, ofRequest) => {
  using client = createWaitingClients(makeFeed().subscribe, { signal }).begin("a", 60, ofRequest);
  expect(await client.next()).toBe(false);
});
