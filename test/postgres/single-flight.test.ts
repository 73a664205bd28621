import { expect, test } from "bun:test";
import { createSingleFlight } from "../../src/postgres/single-flight.ts";

/** Work that ends when the test says so. */
function makeWork() {
  const share = createSingleFlight<number>();
  const runs: { readonly key: string; readonly end: (error?: Error) => void }[] = [];
  const call = (key: string) =>
    share(key, () => {
      const { promise, resolve, reject } = Promise.withResolvers<number>();
      const number = runs.length;
      runs.push({ key, end: (error) => (error === undefined ? resolve(number) : reject(error)) });
      return promise;
    });
  return { runs, call };
}

test("work is shared by the calls of its key that come before it begins", async () => {
  const { runs, call } = makeWork();
  const first = ["a", "a", "b", "a"].map(call);
  await Bun.sleep(0);
  expect(runs.map(({ key }) => key)).toEqual(["a", "b"]);
  // These may have to see what was committed since.
  const later = ["a", "a"].map(call);
  await Bun.sleep(0);
  expect(runs).toHaveLength(2);
  for (const { end } of runs) end();
  expect(await Promise.all(first)).toEqual([0, 0, 1, 0]);
  await Bun.sleep(0);
  expect(runs.map(({ key }) => key)).toEqual(["a", "b", "a"]);
  runs[2]?.end();
  expect(await Promise.all(later)).toEqual([2, 2]);
});

test("work that fails rejects its calls, and not the next ones", async () => {
  const { runs, call } = makeWork();
  const failed = Promise.allSettled(["a", "a"].map(call));
  await Bun.sleep(0);
  const next = call("a");
  runs[0]?.end(new Error("failed"));
  expect((await failed).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await Bun.sleep(0);
  runs[1]?.end();
  expect(await next).toBe(1);
});
