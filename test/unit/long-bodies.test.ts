import { expect, test } from "bun:test";
import { boundBody, streamOf } from "../../src/http/long-bodies.ts";

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

/** A body when so many requests are unfinished, and the bytes that count. */
function boundedBody(body: string | Blob, unfinished: number) {
  const held = { bytes: 0 };
  const hold = (bytes: number) => {
    held.bytes = bytes;
    return () => {
      held.bytes = 0;
    };
  };
  const connections = { unfinished: () => unfinished, disconnect() {} };
  const call = { request: new Request("http://localhost"), connections };
  return { held, bounded: boundBody(call, body, hold) };
}

const BYTES = 600_000;
const text = "é".repeat(BYTES / 2);
const longBodies: [kind: string, body: string | Blob][] = [
  ["text", text],
  ["shared", new Blob([text])],
];

test.each(longBodies)(
  "a long %s body is sent as it is when few requests are unfinished",
  (_, body) => {
    const { held, bounded } = boundedBody(body, 64);
    expect(bounded).toBe(body);
    expect(held.bytes).toBe(0);
  },
);

test.each(longBodies)("a long %s body counts until its client has read it", async (_, body) => {
  const { held, bounded } = boundedBody(body, 65);
  expect(bounded).toBeInstanceOf(ReadableStream);
  const reader = (bounded as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let received = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    expect(held.bytes).toBe(BYTES);
    received += decoder.decode(value, { stream: true });
  }
  expect(received).toBe(text);
  expect(held.bytes).toBe(0);
});

test.each(longBodies)(
  "a long %s body counts no longer when its client disconnects",
  async (_, body) => {
    const { held, bounded } = boundedBody(body, 65);
    const reader = (bounded as ReadableStream<Uint8Array>).getReader();
    const first = reader.read();
    expect(held.bytes).toBe(BYTES);
    await reader.cancel();
    await first;
    expect(held.bytes).toBe(0);
  },
);

test("a client reads a shared body in chunks of 256 KiB", async () => {
  const { bounded } = boundedBody(new Blob([text]), 65);
  const lengths: number[] = [];
  for await (const chunk of bounded as ReadableStream<Uint8Array>) lengths.push(chunk.length);
  expect(lengths).toEqual([262_144, 262_144, BYTES - 2 * 262_144]);
});
