import { expect, test } from "bun:test";
import { startReloading } from "../../src/cli/reload.ts";

test("startReloading logs each problem once and each success when it tries again and again", async () => {
  const outcomes = [false, "half", "half", "none", true, false, true, "none", "none", false];
  const logged: string[] = [];
  const tried = Promise.withResolvers<void>();
  async function reloadTls(isForced: boolean): Promise<boolean> {
    expect(isForced).toBe(false);
    const outcome = outcomes.shift();
    if (outcome === undefined) tried.resolve();
    if (typeof outcome === "string") throw new Error(outcome);
    return outcome === true;
  }
  const log = {
    info: (event: string) => logged.push(event),
    error: (event: string, fields: object = {}) => logged.push(event, ...Object.values(fields)),
  };
  using _reloading = startReloading({ reloadTls }, log, 1);
  await tried.promise;
  const [problem, success] = ["certificate not reloaded", "certificate reloaded"];
  const expected = [problem, "half", problem, "none", success, success, problem, "none"];
  expect(logged).toEqual(expected);
});
