import { expect, spyOn, test } from "bun:test";
import { AppError } from "../../src/error.ts";
import { createBodyReader, waitWithBody } from "../../src/http/body.ts";
import { createPendingWrites } from "../../src/http/pending-writes.ts";

const MAX_BYTES = 100;

/** @returns the message of an error unavailable; `null` if nothing is thrown */
function problemOf(work: () => unknown): string | null {
  try {
    work();
    return null;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    expect(error.code).toBe("unavailable");
    return error.message;
  }
}

const manyWrites = "this token has too many writes in progress";
const manyWritesOfAll = "too many writes are in progress";
const manyBytes = "this token has too many bytes of writes in progress";
const manyBytesOfAll = "too many bytes of writes are in progress";

test.each([
  [2, 1],
  [5, 2],
  [4096, 2048],
])("a queue of %i writes has %i places for one token, and others for the next", (queue, share) => {
  const writes = createPendingWrites(queue, MAX_BYTES);
  const begun = Array.from({ length: share }, () => writes.begin("a"));
  expect(problemOf(() => writes.begin("a"))).toBe(manyWrites);
  expect(problemOf(() => writes.begin("b"))).toBeNull();
  begun[0]?.end();
  expect(problemOf(() => writes.begin("a"))).toBeNull();
  expect(problemOf(() => writes.begin("a"))).toBe(manyWrites);
});

test.each([
  [1, 1],
  [5, 3],
])(
  "a queue of %i writes has no place for another token when %i tokens have all",
  (queue, tokens) => {
    const writes = createPendingWrites(queue, MAX_BYTES);
    const begun = Array.from({ length: queue }, (_, at) => writes.begin(`${at % tokens}`));
    expect(problemOf(() => writes.begin("other"))).toBe(manyWritesOfAll);
    begun[0]?.end();
    expect(problemOf(() => writes.begin("other"))).toBeNull();
    expect(problemOf(() => writes.begin("late"))).toBe(manyWritesOfAll);
  },
);

test("bytes are rejected when others of the same token take half of the memory", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const first = writes.begin("a");
  first.addBytes(40);
  const second = writes.begin("a");
  second.addBytes(10);
  expect(problemOf(() => second.addBytes(1))).toBe(manyBytes);
  expect(problemOf(() => first.addBytes(1))).toBe(manyBytes);
  // Those that were rejected do not count.
  expect(problemOf(() => writes.begin("b").addBytes(50))).toBeNull();
  second.end();
  expect(problemOf(() => first.addBytes(10))).toBeNull();
});

test("bytes are rejected when others take all of the memory", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const [first, second, third] = [writes.begin("a"), writes.begin("b"), writes.begin("c")];
  first.addBytes(50);
  second.addBytes(50);
  expect(problemOf(() => third.addBytes(1))).toBe(manyBytesOfAll);
  second.end();
  expect(problemOf(() => third.addBytes(50))).toBeNull();
});

test("a body that is larger than the memory is accepted when there is no other, in one piece or in several", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const whole = writes.begin("a");
  whole.addBytes(2 * MAX_BYTES);
  expect(problemOf(() => writes.begin("b").addBytes(1))).toBe(manyBytesOfAll);
  whole.end();
  const chunked = writes.begin("a");
  for (let chunk = 0; chunk < 3; chunk += 1) chunked.addBytes(MAX_BYTES);
  chunked.end();
  expect(problemOf(() => writes.begin("b").addBytes(MAX_BYTES / 2))).toBeNull();
});

test("a large record counts twice, as it is read and as it is returned, but only once when the write is retried", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const first = writes.begin("a");
  first.addBytes(10);
  first.reserve(20);
  // It has become smaller since.
  first.reserve(5);
  const second = writes.begin("a");
  expect(problemOf(() => second.reserve(1))).toBe(manyBytes);
  expect(problemOf(() => writes.begin("b").reserve(25))).toBeNull();
  first.end();
  expect(problemOf(() => second.reserve(25))).toBeNull();
});

test("a record that is larger than the memory is accepted when there is no other", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const write = writes.begin("a");
  write.addBytes(1);
  expect(problemOf(() => write.reserve(MAX_BYTES))).toBeNull();
});

test("a response counts instead of the body and the record until it is sent", () => {
  const writes = createPendingWrites(2, MAX_BYTES);
  const write = writes.begin("a");
  write.addBytes(30);
  write.reserve(10);
  const sent = write.hold(40);
  write.end();
  const next = writes.begin("a");
  expect(problemOf(() => next.addBytes(11))).toBe(manyBytes);
  sent();
  expect(problemOf(() => next.addBytes(50))).toBeNull();
  // Only once.
  sent();
  expect(problemOf(() => writes.begin("b").addBytes(50))).toBeNull();
  expect(problemOf(() => next.addBytes(1))).toBe(manyBytesOfAll);
});

test("a response counts alone when its token has no other write", () => {
  const writes = createPendingWrites(100, MAX_BYTES);
  const write = writes.begin("a");
  const sent = write.hold(MAX_BYTES);
  write.end();
  expect(problemOf(() => writes.begin("a").addBytes(1))).toBe(manyBytes);
  sent();
  expect(problemOf(() => writes.begin("a").addBytes(50))).toBeNull();
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
