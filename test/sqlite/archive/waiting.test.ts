import { expect, test } from "bun:test";
import { AppError } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { createProblems } from "../../../src/sqlite/archive/problems.ts";
import { patienceMs, untilStill } from "../../../src/sqlite/archive/read/still.ts";
import { probe } from "../../../src/sqlite/archive/thread/probe.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";
import { expectRejection } from "../../support/expect-error.ts";
import { makeClock } from "./archived.ts";

const unavailable = (message: string) => new AppError("unavailable", message);

function makeProblems() {
  const lines: string[] = [];
  const waits: (string | null)[] = [];
  const clock = makeClock();
  const log = (_level: string, event: string) => void lines.push(event);
  const problems = createProblems(log, clock, (what) => void waits.push(what));
  return { ...problems, clock, lines, waits };
}

test("the most important problem of what an archive needs is the current one", () => {
  const problems = makeProblems();
  for (const [activity, current] of [
    ["deletion", null],
    ["heartbeat", null],
    ["base", "base"],
    ["segments", "segments"],
    ["opening", "opening"],
  ] as const) {
    problems.report(activity, unavailable(activity));
    expect(problems.current()).toBe(current);
  }
  problems.clear("opening");
  expect(problems.current()).toBe("segments");
  problems.clearRequired();
  expect(problems.current()).toBeNull();
});

test("a server waits for what still fails, and says nothing of what only the log may say", () => {
  const problems = makeProblems();
  problems.report("following", unavailable("s3://bucket is away"));
  problems.report("following", unavailable("waiting for a command"));
  problems.report("following", new Error("EIO"));
  problems.report("heartbeat", unavailable("no answer"));
  problems.clear("heartbeat");
  for (let clears = 0; clears < 2; clears += 1) problems.clear("following");
  const [storage, disk] = ["the storage of the archive", "its disk"];
  expect(problems.waits).toEqual([storage, "a command", disk, storage, disk, null]);
});

test("a failure is logged at most once a minute, and so is that it is over", () => {
  const problems = makeProblems();
  for (let second = 0; second <= 60; second += 1) {
    problems.report("segments", unavailable("no answer"));
    problems.clear("segments");
    problems.clock.pass(1_000);
  }
  const outage = ["archive not written", "archive written again"];
  expect(problems.lines).toEqual([...outage, ...outage]);
});

// What a server waits for before it follows an archive or writes to one, and what its storage must be able to do.
const { signal } = new AbortController();
const busy = () => Promise.reject(new AppError("unavailable", "busy"));

function tryStorage(storage: ObjectStorage, clock = makeClock(), events: string[] = []) {
  const log = (_level: string, event: string) => void events.push(event);
  return probe({ storage, machine: clock, signal, log });
}

test("a sound storage is accepted after 1.5 seconds, or later if it is slow, and keeps nothing", async () => {
  const storage = createMemoryStorage();
  const clock = makeClock();
  await tryStorage(storage, clock);
  expect([clock.monotonicMs(), await storage.list("")]).toEqual([1_500, []]);
  const events: string[] = [];
  await tryStorage({ ...storage, remove: busy }, clock, events);
  expect(events).toEqual(["archive probes not deleted"]);
  // With one write of a key per second, and busy at first.
  const slow = makeClock();
  const memory = createMemoryStorage();
  const writtenMs = new Map<string, number>();
  const create: ObjectStorage["create"] = (key, body) => {
    const nowMs = slow.monotonicMs();
    if (nowMs === 0 || nowMs - (writtenMs.get(key) ?? 0) < 2_000) return busy();
    return memory.create(key, body).finally(() => writtenMs.set(key, nowMs));
  };
  await tryStorage({ ...memory, create }, slow);
});

test("a storage that checks first and stores later, forgets, lists less, is busy or takes no unconditional put is refused", async () => {
  const memory = createMemoryStorage();
  const all = Promise.withResolvers<void>();
  let creates = 0;
  const late: ObjectStorage["create"] = async (key, body) => {
    const isTaken = (await memory.get(key)) !== null;
    creates += 1;
    if (creates === 8) all.resolve();
    await all.promise;
    if (!isTaken) await memory.put(key, body);
    return !isTaken;
  };
  const racing = tryStorage({ ...memory, create: late });
  await expectRejection(racing, "operator", /^Cannot use memory: its .* are not atomic/);
  const clock = makeClock();
  const forget: ObjectStorage["create"] = (...given) =>
    clock.monotonicMs() > 0 ? memory.put(...given).then(() => true) : memory.create(...given);
  const forgetting = tryStorage({ ...memory, create: forget }, clock);
  await expectRejection(forgetting, "operator", /does not support conditional writes$/);
  const list: ObjectStorage["list"] = async (...given) => (await memory.list(...given)).slice(1);
  await expectRejection(tryStorage({ ...memory, list }), "operator", /its lists do not have/);
  await expectRejection(tryStorage({ ...memory, create: busy }), "unavailable", /^busy/);
  const put = () => Promise.reject(new AppError("operator", "forbidden"));
  await expectRejection(tryStorage({ ...memory, put }), "operator", "forbidden");
});

const next = { generation: 1, number: 1 };

test("a log is still when nothing was written for longer than the interval of heartbeats, in which no process slept", async () => {
  const storage = createMemoryStorage();
  // A look that takes time delays the end by no more than that.
  const clock = makeClock(() => clock.pass(30));
  await untilStill({ storage, machine: clock, signal }, next);
  expect(clock.monotonicMs()).toBe(6_530);
  const suspended = makeClock(() => suspended.pass(3_600_000));
  await untilStill({ storage, machine: suspended, signal }, next);
  expect(suspended.sleeps()).toBeGreaterThan(5);
});

for (const [takeoverMs, wasSuperseded, intervalMs, ms] of [
  [10_000, false, 5_000, 10_000],
  [10_000, true, 5_000, 20_000],
  [3_000, false, 5_000, 10_000],
  [3_000, true, 750, 6_000],
] as const)
  test(`a standby waits for TAKEOVER_SECONDS, after it was superseded twice as long, or for two heartbeats: ${takeoverMs}`, () => {
    expect(patienceMs({ takeoverMs, wasSuperseded }, intervalMs)).toBe(ms);
  });
