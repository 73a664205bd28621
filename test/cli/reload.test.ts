import { expect, test } from "bun:test";
import { startReloading } from "../../src/cli/reload.ts";

test("startReloading logs a problem once until it is solved, and each hang-up, when it tries again and again", async () => {
  const outcomes = [false, "half", "half", "none", true, false, "none", "none", false];
  const logged: string[] = [];
  const tried = Promise.withResolvers<void>();
  const hangup = Promise.withResolvers<() => void>();
  async function reload(): Promise<boolean> {
    const outcome = outcomes.shift();
    if (outcome === undefined) tried.resolve();
    if (typeof outcome === "string") throw new Error(outcome);
    return outcome === true;
  }
  const info = (event: string) => logged.push(event);
  const error = (_event: string, fields: object = {}) => logged.push(...Object.values(fields));
  using _reloading = startReloading(reload, hangup.resolve, { info, error }, 1);
  await tried.promise;
  const hangUp = await hangup.promise;
  outcomes.push("none", "none", true, false);
  for (let time = 0; time < 4; time += 1) hangUp();
  // Each has called already, and logs in this turn.
  await Bun.sleep(0);
  const renewed = "certificate reloaded";
  const asked = ["none", "none", renewed, "nothing to reload"];
  expect(logged).toEqual(["half", "none", renewed, "none", renewed, ...asked]);
});
