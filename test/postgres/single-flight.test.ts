import { expect, test } from "bun:test";
import { createSingleFlight } from "../../src/postgres/single-flight.ts";

/** Work that ends when the test says so. */
function makeWork() {
  const share = createSingleFlight<number>();
  const runs: { readonly key: string; readonly end: () => void }[] = [];
  const call = (key: string) =>
    share(key, () => {
      const { promise, resolve } = Promise.withResolvers<number>();
      const number = runs.length;
      runs.push({ key, end: () => resolve(number) });
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
