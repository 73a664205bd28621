import { expect, test } from "bun:test";
import { chain, recover } from "../src/awaitable.ts";

const fault = new Error("fault");

function raise(): never {
  throw fault;
}

test("`chain` ends at once when the value is there", () => {
  expect(chain(2, (value) => value + 1)).toBe(3);
  expect(chain(undefined, (value) => [value])).toEqual([undefined]);
  expect(() => chain(2, raise)).toThrow(fault);
});

test("`chain` ends later when the value comes later, or what follows takes its time", async () => {
  const late = Promise.resolve(2);
  const pending = chain(late, (value) => value + 1);
  expect(pending).toBeInstanceOf(Promise);
  expect(await pending).toBe(3);
  expect(await chain(2, async (value) => value + 1)).toBe(3);
  expect(await chain(late, async (value) => value + 1)).toBe(3);
});

test("`chain` fails as what it waits for, and what follows, does", async () => {
  const never = () => expect.unreachable();
  await expect(Promise.resolve(chain(Promise.reject(fault), never))).rejects.toBe(fault);
  await expect(Promise.resolve(chain(Promise.resolve(2), raise))).rejects.toBe(fault);
});

test("`recover` leaves a value as it is when nothing fails", async () => {
  const never = () => expect.unreachable();
  expect(recover(() => 2, never)).toBe(2);
  expect(await recover(() => Promise.resolve(2), never)).toBe(2);
});

test("`recover` puts another value in its place when it fails, at once or later", async () => {
  const told = (error: unknown) => [error];
  expect(recover(raise, told)).toEqual([fault]);
  const pending = recover(() => Promise.reject(fault), told);
  expect(pending).toBeInstanceOf(Promise);
  expect(await pending).toEqual([fault]);
});

test("`recover` fails when what is to recover fails, at once or later", async () => {
  expect(() => recover(raise, raise)).toThrow(fault);
  await expect(
    Promise.resolve(recover(() => Promise.reject(new Error("other")), raise)),
  ).rejects.toBe(fault);
});
