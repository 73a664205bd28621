// What a server does beside requests. What it does to connections is tested on the binary, in open-files.test.ts and
// reload.test.ts.
import { expect, test } from "bun:test";
import { startCleanUp } from "../../src/cli/clean-up.ts";
import { startReloading } from "../../src/cli/reload.ts";
import { closeIdle } from "../../src/cli/system/sockets.ts";
import { KEY_LIFETIME_MS } from "../../src/domain/idempotency.ts";
import { stopTime } from "../support/fake-time.ts";
import { runProgram } from "../support/program.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

test("the cleanup begins again when the last one has ended, also if it has failed, and immediately if more is left, until it is stopped", async () => {
  const nowMs = Date.parse("2026-11-26T00:00:00.000Z");
  let [hours, pass] = [0, () => {}];
  const stop = () => {
    pass = () => {};
  };
  const clock = {
    nowMs: () => nowMs,
    monotonicMs: () => 3_600_000 * hours++,
    sleep: async () => {},
    every(_ms: number, work: () => void) {
      pass = work;
      return { [Symbol.dispose]: stop };
    },
  };
  async function passTwice(): Promise<void> {
    for (let times = 0; times < 2; times += 1) {
      pass();
      await Bun.sleep(0);
    }
  }
  const [begun, keysBefore, warnings]: [Date[], Date[], unknown[]] = [[], [], []];
  // The deletion of changes ends when the test says so, and whether more are left.
  const ends: PromiseWithResolvers<boolean>[] = [];
  const deleteExpired = (before: Date) => {
    begun.push(before);
    ends.push(Promise.withResolvers());
    return ends.at(-1)?.promise;
  };
  const deleteExpiredKeys = async (before: Date) => keysBefore.push(before) < 0;
  const store = { deleteExpiredKeys, changes: { deleteExpired }, isPrimary: () => true };
  const warn = (_event: string, fields?: object) => void warnings.push(fields);
  const cleanUp = startCleanUp(() => store as never, 30 * DAY_MS, { warn }, clock);
  await passTwice();
  expect(begun).toHaveLength(1);
  ends[0]?.reject(new Error("on purpose"));
  await passTwice();
  expect(begun).toHaveLength(2);
  expect(warnings).toEqual([{ reason: "on purpose" }]);
  ends[1]?.resolve(true);
  await passTwice();
  const stopping = cleanUp[Symbol.asyncDispose]();
  await passTwice();
  expect(Bun.peek.status(Promise.resolve(stopping))).toBe("pending");
  ends[2]?.resolve(true);
  await stopping;
  await passTwice();
  expect(begun).toHaveLength(3);
  // By the first look at a clock, nothing is old enough.
  expect([begun[0], keysBefore[0]].map(Number)).toEqual([-30 * DAY_MS, -KEY_LIFETIME_MS]);
  expect(begun.slice(1)).toEqual(Array(2).fill(new Date("2026-10-27T00:00:00.000Z")));
  expect(keysBefore.slice(1)).toEqual([new Date("2026-11-25T00:00:00.000Z")]);
});

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

const onLinux = test.if(process.platform === "linux");

onLinux("limitOpenFiles lowers the limit, and does not raise it again", async () => {
  const path = `${import.meta.dir}/../../src/cli/system/sockets.ts`;
  const script = `import { limitOpenFiles } from "${path}";
    console.log(limitOpenFiles(500), limitOpenFiles(1000));`;
  const { stdout } = await runProgram([process.execPath, "-e", script]);
  expect(stdout).toBe("500 500\n");
});

onLinux("closeIdle searches at most once a second when no connection is idle", async () => {
  using time = stopTime();
  let searches = 0;
  const search = () => new Set([++searches]);
  using _closing = closeIdle(1, 1, search, Boolean, Boolean);
  await time.pass(1050);
  expect(searches).toBe(1);
  await time.pass(1000);
  expect(searches).toBe(2);
});
