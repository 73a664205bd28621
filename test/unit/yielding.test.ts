import { expect, test } from "bun:test";
import { yieldToEventLoop } from "../../src/base/event-loop.ts";
import { createYieldToClients } from "../../src/http/limits/yielding.ts";

/** Sends requests. Time passes only while one is handled, and always the same. */
function makeClients(requestMs: number) {
  let timeMs = 0;
  const yieldToClients = createYieldToClients(() => timeMs);
  const handled: string[] = [];
  const handle = (request: string) => {
    timeMs += requestMs;
    handled.push(request);
  };
  return {
    handled,
    send(client: string, name = client) {
      const turn = yieldToClients(client);
      if (turn === null) handle(name);
      else void turn.then(() => handle(name));
    },
    async untilHandled(count: number) {
      while (handled.length < count) await yieldToEventLoop();
    },
    pass(ms: number) {
      timeMs += ms;
    },
  };
}

test("a request is handled immediately when the turn has just begun", async () => {
  const { send, handled, pass } = makeClients(0.1);
  for (let turn = 1; turn <= 100; turn += 1) {
    for (let sent = 0; sent < 10; sent += 1) send("a");
    expect(handled).toHaveLength(10 * turn);
    await yieldToEventLoop();
    pass(turn % 20);
  }
});

test("clients are served round robin when all of them wait, and a new one immediately when a turn has just begun", async () => {
  const { send, handled, untilHandled } = makeClients(1);
  for (let sent = 0; sent < 20; sent += 1) send("a");
  for (const client of ["b", "c", "d"]) for (let sent = 0; sent < 5; sent += 1) send(client);
  await untilHandled(35);
  const first = handled.indexOf("b");
  expect(handled.slice(first, first + 20).join("")).toBe("bcda".repeat(5));
  for (let sent = 0; sent < 20; sent += 1) send("a");
  await yieldToEventLoop();
  send("e");
  expect([handled.length < 55, handled.at(-1)]).toEqual([true, "e"]);
  await untilHandled(56);
});

test("requests of a client are handled in their order when new ones arrive meanwhile", async () => {
  const { send, handled, untilHandled } = makeClients(1);
  const names = Array.from({ length: 60 }, (_, at) => `${at}`);
  for (const [at, name] of names.entries()) {
    send("a", name);
    if (at >= 30) await yieldToEventLoop();
  }
  await untilHandled(names.length);
  expect(handled).toEqual(names);
});

test("one turn of the event loop handles one request when each takes long", async () => {
  const { send, handled, untilHandled } = makeClients(50);
  for (let sent = 0; sent < 6; sent += 1) send("a");
  // The first one is handled before it is known that requests take long.
  const counts = [handled.length];
  while (handled.length < 6) {
    await yieldToEventLoop();
    counts.push(handled.length);
  }
  const steps = counts.slice(1).map((count, at) => count - (counts[at] ?? 0));
  expect(Math.max(...steps)).toBe(1);
  await untilHandled(6);
  // All have been handled: no one waits any more.
  send("b");
  expect(handled.at(-1)).toBe("b");
});
