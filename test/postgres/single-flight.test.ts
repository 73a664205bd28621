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
  // These may have to see what was committed since.
  const later = ["a", "a"].map(call);
  await Bun.sleep(0);
  expect(runs.map(({ key }) => key)).toEqual(["a", "b"]);
  const reason = new Error("failed");
  runs[0]?.reject(reason);
  runs[1]?.resolve("of b");
  const failed = { status: "rejected", reason } as const;
  expect(await first).toEqual([failed, failed, { status: "fulfilled", value: "of b" }, failed]);
  await Bun.sleep(0);
  expect(runs.map(({ key }) => key)).toEqual(["a", "b", "a"]);
  runs[2]?.resolve("of a");
  expect(await Promise.all(later)).toEqual(["of a", "of a"]);
});
