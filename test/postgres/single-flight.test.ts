import { expect, test } from "bun:test";
import { createSingleFlight } from "../../src/postgres/engine/single-flight.ts";

test("work is shared by the calls of its key that come before it begins, and so is its failure", async () => {
  const share = createSingleFlight<string>();
  const runs: (PromiseWithResolvers<string> & { readonly key: string })[] = [];
  const call = (key: string) =>
    share(key, () => {
      const run = { ...Promise.withResolvers<string>(), key };
      runs.push(run);
      return run.promise;
    });
  const first = Promise.allSettled(["a", "a", "b", "a"].map(call));
  await Bun.sleep(0);
  expect(runs.map(({ key }) => key)).toEqual(["a", "b"]);
  // These may have to see what was committed since.
  const later = ["a", "a"].map(call);
  await Bun.sleep(0);
  expect(runs).toHaveLength(2);
  runs[0]?.reject(new Error("failed"));
  runs[1]?.resolve("of b");
  const failed = { status: "rejected", reason: new Error("failed") } as const;
  const succeeded = { status: "fulfilled", value: "of b" } as const;
  expect(await first).toEqual([failed, failed, succeeded, failed]);
  await Bun.sleep(0);
  expect(runs.map(({ key }) => key)).toEqual(["a", "b", "a"]);
  runs[2]?.resolve("of a");
  expect(await Promise.all(later)).toEqual(["of a", "of a"]);
});
