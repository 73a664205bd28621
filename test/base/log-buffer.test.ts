import { expect, test } from "bun:test";
import { createLogBuffer, type WriteBytes } from "../../src/base/log-buffer.ts";
import { stopTime } from "../support/fake-time.ts";

const LINE = `${"x".repeat(999)}\n`;
/** Number of lines that fit. The last one may exceed the limit. */
const FITTING = Math.ceil(2 ** 20 / LINE.length);

function makeDescriptor(stalled = false) {
  let text = "";
  let blocked = Promise.withResolvers<void>();
  if (!stalled) blocked.resolve();
  const writes: number[] = [];
  const write: WriteBytes = async (bytes) => {
    writes.push(bytes.length);
    await blocked.promise;
    text += Buffer.from(bytes).toString();
    return bytes.length;
  };
  return {
    write,
    writes,
    text: () => text,
    block() {
      blocked = Promise.withResolvers();
    },
    unblock: () => blocked.resolve(),
  };
}

test("createLogBuffer has one write in progress, and writes together what has arrived meanwhile, in order", async () => {
  using time = stopTime();
  const descriptor = makeDescriptor(true);
  const buffer = createLogBuffer(descriptor.write);
  buffer.write("a\n");
  for (const line of ["ä\n", "😀\n", "b\n"]) {
    buffer.write(line);
    await time.pass(15);
  }
  expect(descriptor.writes).toEqual([5]);
  descriptor.unblock();
  const finished = buffer.finish();
  await time.pass(20);
  expect(await finished).toBe(true);
  expect([descriptor.text(), descriptor.writes]).toEqual(["a\nä\n😀\nb\n", [5, 7]]);
  expect(buffer.droppedLines()).toBe(0);
});

test("createLogBuffer reports the dropped lines of each gap at their position when the reader continues", async () => {
  const descriptor = makeDescriptor(true);
  const buffer = createLogBuffer(descriptor.write);
  buffer.onResume((lines) => buffer.write(`${lines} dropped\n`));
  for (let count = 0; count < FITTING + 7; count += 1) buffer.write(LINE);
  expect(buffer.droppedLines()).toBe(7);
  // A write in progress counts towards the limit.
  while (descriptor.writes.length === 0) await Bun.sleep(1);
  buffer.write("one\nand another\n");
  expect(buffer.droppedLines()).toBe(9);
  descriptor.unblock();
  while (!descriptor.text().includes("dropped")) await Bun.sleep(1);
  buffer.write("after\n");
  expect(await buffer.finish()).toBe(true);
  descriptor.block();
  for (let count = 0; count < FITTING + 3; count += 1) buffer.write(LINE);
  descriptor.unblock();
  await buffer.finish();
  const lines = LINE.repeat(FITTING);
  expect(descriptor.text() === `${lines}9 dropped\nafter\n${lines}3 dropped\n`).toBe(true);
  expect(buffer.droppedLines()).toBe(12);
});

test("finish waits for the reader when it is slow", async () => {
  using time = stopTime();
  let text = "";
  // Takes longer than a second in total.
  const buffer = createLogBuffer(async (bytes) => {
    await Bun.sleep(200);
    const count = Math.min(bytes.length, 2);
    text += Buffer.from(bytes.subarray(0, count)).toString();
    return count;
  });
  const lines = [..."abcdef"].map((letter) => `${letter}\n`);
  for (const line of lines) buffer.write(line);
  const finished = buffer.finish();
  await time.pass(1_500);
  expect([await finished, text]).toEqual([true, lines.join("")]);
});

test("createLogBuffer continues, and finish returns false, when a write has failed", async () => {
  const descriptor = makeDescriptor();
  let full = true;
  const buffer = createLogBuffer(async (bytes) => {
    if (full) throw new Error("ENOSPC");
    return descriptor.write(bytes);
  });
  buffer.onResume((lines) => buffer.write(`${lines} dropped\n`));
  buffer.write("a\n");
  buffer.write("b\n");
  expect(await buffer.finish()).toBe(false);
  full = false;
  buffer.write("c\n");
  expect(await buffer.finish()).toBe(false);
  expect([descriptor.text(), buffer.droppedLines()]).toEqual(["c\n2 dropped\n", 2]);
});
