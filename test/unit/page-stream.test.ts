import { expect, test } from "bun:test";
import { streamOf } from "../../src/http/bodies.ts";

/** A page in two chunks, and what has happened to it. */
function streamedPage(maxChunkMs: number) {
  const events: string[] = [];
  const chunks = ["1,", "2"].map((text) => new TextEncoder().encode(text));
  const records = {
    next: () => chunks.shift() ?? null,
    [Symbol.dispose]: () => {
      events.push("discarded");
    },
  };
  const connections = {
    unfinished: () => 1,
    disconnect: () => {
      events.push("disconnected");
    },
  };
  const call = { request: new Request("http://localhost"), connections };
  return { events, stream: streamOf(call, "[", records, "]", maxChunkMs) };
}

test("a streamed page is complete when its client reads it", async () => {
  const { events, stream } = streamedPage(60_000);
  expect(await new Response(stream).text()).toBe("[1,2]");
  expect(events).toEqual([]);
});

test("a streamed page is discarded and its client disconnected when it reads a chunk too slowly", async () => {
  const { events, stream } = streamedPage(1);
  const reader = stream.getReader();
  await reader.read();
  await reader.read();
  while (events.length < 2) await Bun.sleep(1);
  expect(events).toEqual(["discarded", "disconnected"]);
  expect(await reader.read().catch((error) => error)).toBeInstanceOf(Error);
});

test("a client that has read the whole page is not disconnected later", async () => {
  const { events, stream } = streamedPage(1);
  await new Response(stream).text();
  await Bun.sleep(20);
  expect(events).toEqual([]);
});

test("a streamed page is discarded when its client disconnects", async () => {
  const { events, stream } = streamedPage(1);
  const reader = stream.getReader();
  await reader.read();
  await reader.cancel();
  await Bun.sleep(20);
  expect(events).toEqual(["discarded"]);
});
