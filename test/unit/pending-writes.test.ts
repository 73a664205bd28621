import { expect, spyOn, test } from "bun:test";
import { createBodyReader, waitWithBody } from "../../src/http/body.ts";
import { createPendingWrites } from "../../src/http/pending-writes.ts";
import { expectThrown } from "../expect-error.ts";

const MAX_BYTES = 100;

const manyWrites = "too many writes are in progress";
const manyBytes = "too many bytes of writes are in progress";

test.each([
  [2, 1],
  [5, 2],
  [4096, 2048],
])("a queue of %i writes has %i places for one token, and others for the next", (queue, share) => {
  const writes = createPendingWrites(queue, MAX_BYTES);
  const begun = Array.from({ length: share }, () => writes.begin("a"));
  expectThrown(() => writes.begin("a"), "unavailable", manyWrites);
  writes.begin("b");
  begun[0]?.end();
  writes.begin("a");
  expectThrown(() => writes.begin("a"), "unavailable", manyWrites);
});

test.each([
  [1, 1],
  [5, 3],
])(
  "a queue of %i writes has no place for another token when %i tokens have all",
  (queue, tokens) => {
    const writes = createPendingWrites(queue, MAX_BYTES);
    const begun = Array.from({ length: queue }, (_, at) => writes.begin(`${at % tokens}`));
    expectThrown(() => writes.begin("other"), "unavailable", manyWrites);
    begun[0]?.end();
    writes.begin("other");
    expectThrown(() => writes.begin("late"), "unavailable", manyWrites);
  },
);

test("bytes are rejected when others of the same token take half of the memory", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const first = writes.begin("a");
  first.addBytes(40);
  const second = writes.begin("a");
  second.addBytes(10);
  expectThrown(() => second.addBytes(1), "unavailable", manyBytes);
  expectThrown(() => first.addBytes(1), "unavailable", manyBytes);
  // Those that were rejected do not count.
  writes.begin("b").addBytes(50);
  second.end();
  first.addBytes(10);
});

test("bytes are rejected when others take all of the memory", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const [first, second, third] = [writes.begin("a"), writes.begin("b"), writes.begin("c")];
  first.addBytes(50);
  second.addBytes(50);
  expectThrown(() => third.addBytes(1), "unavailable", manyBytes);
  second.end();
  third.addBytes(50);
});

test("a body that is larger than the memory is accepted when there is no other, in one piece or in several", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const whole = writes.begin("a");
  whole.addBytes(2 * MAX_BYTES);
  expectThrown(() => writes.begin("b").addBytes(1), "unavailable", manyBytes);
  whole.end();
  const chunked = writes.begin("a");
  for (let chunk = 0; chunk < 3; chunk += 1) chunked.addBytes(MAX_BYTES);
  chunked.end();
  writes.begin("b").addBytes(MAX_BYTES / 2);
});

test("a large record counts twice, as it is read and as it is returned, but only once when the write is retried", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const first = writes.begin("a");
  first.addBytes(10);
  first.reserve(20);
  // It has become smaller since.
  first.reserve(5);
  const second = writes.begin("a");
  expectThrown(() => second.reserve(1), "unavailable", manyBytes);
  writes.begin("b").reserve(25);
  first.end();
  second.reserve(25);
});

test("a record that is larger than the memory is accepted when there is no other", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const write = writes.begin("a");
  write.addBytes(1);
  write.reserve(MAX_BYTES);
});

test("a response counts instead of the body and the record until it is sent", () => {
  const writes = createPendingWrites(2, MAX_BYTES);
  const write = writes.begin("a");
  write.addBytes(30);
  write.reserve(10);
  const sent = write.hold(40);
  write.end();
  const next = writes.begin("a");
  expectThrown(() => next.addBytes(11), "unavailable", manyBytes);
  sent();
  next.addBytes(50);
  // Only once.
  sent();
  writes.begin("b").addBytes(50);
  expectThrown(() => next.addBytes(1), "unavailable", manyBytes);
});

test("a response counts alone when its token has no other write", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const write = writes.begin("a");
  const sent = write.hold(MAX_BYTES);
  write.end();
  expectThrown(() => writes.begin("a").addBytes(1), "unavailable", manyBytes);
  sent();
  writes.begin("a").addBytes(50);
});

test("garbage is collected for bodies that are read, not for those that wait", async () => {
  using collect = spyOn(Bun, "gc").mockImplementation(() => {});
  const writes = createPendingWrites(1);
  const body = JSON.stringify("x".repeat(2 ** 16));
  const readBody = createBodyReader(body.length);
  const headers = { "content-length": String(body.length) };
  const request = () => new Request("http://localhost", { method: "POST", headers, body });
  for (let waited = 0; waited < 100; waited += 1) {
    await waitWithBody(writes, Promise.resolve(), request().headers, "a");
  }
  expect(collect).not.toHaveBeenCalled();
  for (let read = 0; read < 100; read += 1) {
    const write = writes.begin("a");
    await readBody(request(), write);
    write.end();
  }
  expect(collect).toHaveBeenCalled();
});
