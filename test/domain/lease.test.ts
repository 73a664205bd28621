import { describe, expect, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import { createLease, type LeaseOptions, systemClock } from "../../src/domain/lease.ts";
import type { ObjectStorage } from "../../src/domain/object-storage.ts";
import { bytes, text } from "../object-storage/contract.ts";
import { createMemoryStorage } from "../object-storage/memory.ts";
import { makeUnreliable } from "../object-storage/unreliable.ts";
import { expectRejection } from "../support/expect-error.ts";
import { simulate } from "../support/lease-simulation.ts";

const durationMs = 15_000;
const intervalMs = 5_000;
const { signal } = new AbortController();

/** Lets everything continue that can. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** Time that passes only when the test says so. */
function makeTime() {
  let nowMs = 1_000_000;
  let sleepers: { readonly untilMs: number; readonly wake: () => void }[] = [];
  const time = {
    /** Added to the wall clock. */
    wallMs: 0,
    clock: {
      monotonicMs: () => nowMs,
      wallMs: () => nowMs + time.wallMs,
      sleep: (ms: number, signal: AbortSignal) =>
        new Promise<void>((resolve) => {
          sleepers.push({ untilMs: nowMs + ms, wake: resolve });
          signal.addEventListener("abort", () => resolve());
        }),
    },
    /** Time passes, but nobody wakes up. */
    skip(ms: number) {
      nowMs += ms;
    },
    async pass(ms: number) {
      const endMs = nowMs + ms;
      for (;;) {
        await settle();
        const next = sleepers.toSorted((left, right) => left.untilMs - right.untilMs)[0];
        if (next === undefined || next.untilMs > endMs) break;
        sleepers = sleepers.filter((sleeper) => sleeper !== next);
        nowMs = Math.max(nowMs, next.untilMs);
        next.wake();
      }
      nowMs = endMs;
      await settle();
    },
  };
  return time;
}

function makeServers() {
  const time = makeTime();
  const storage = createMemoryStorage();
  const events: string[] = [];
  const createServer = (name: string, options: Partial<LeaseOptions & ObjectStorage> = {}) => {
    const identity = crypto.randomUUID();
    return createLease(
      { ...storage, ...options },
      {
        key: "lease",
        holder: name,
        identity: () => identity,
        lastNumber: async () => 0,
        durationMs,
        intervalMs,
        clock: time.clock,
        onWait: (holder) => events.push(`${name} waits for ${holder}`),
        onProblem(error) {
          events.push(`${name}: ${error?.message ?? "works again"}`);
        },
        ...options,
      },
    );
  };
  return { time, storage, events, createServer };
}

describe("a lease", () => {
  test("it is held from its acquisition on, and while it is renewed", async () => {
    const { time, createServer, events } = makeServers();
    const lease = createServer("a");
    expect(lease.isHeld()).toBe(false);
    expect(await lease.acquire(signal)).toBe(1);
    for (let minute = 0; minute < 3; minute++) {
      expect(lease.isHeld()).toBe(true);
      await time.pass(60_000);
    }
    expect(lease.isHeld()).toBe(true);
    expect(events).toEqual([]);
  });

  test("its time begins before it is requested, and it ends when it cannot be renewed", async () => {
    const { time, storage, events, createServer } = makeServers();
    const { state, unreliable } = makeUnreliable(storage);
    const lease = createServer("a", {
      ...unreliable,
      create(key, body) {
        time.skip(2_000);
        return unreliable.create(key, body);
      },
      replace(key, body, tag) {
        time.skip(2_000);
        return unreliable.replace(key, body, tag);
      },
    });
    await lease.acquire(signal);
    state.isAway = true;
    // The two tests of conditional writes have taken as long again.
    await time.pass(durationMs - 6_000 - 1);
    expect(lease.isHeld()).toBe(true);
    await time.pass(1);
    expect(lease.isHeld()).toBe(false);
    expect(events.length).toBeGreaterThan(1);
    expect(new Set(events)).toEqual(new Set(["a: away"]));
    state.isAway = false;
    await time.pass(intervalMs);
    expect(lease.isHeld()).toBe(true);
    await time.pass(60_000);
    expect(events.filter((event) => event !== "a: away")).toEqual(["a: works again"]);
  });

  test("another process takes it when it has seen no renewal for longer than it lasts", async () => {
    const { time, storage, events, createServer } = makeServers();
    const { state, unreliable } = makeUnreliable(storage);
    const first = createServer("a", unreliable);
    const second = createServer("b");
    await first.acquire(signal);
    const acquiring = second.acquire(signal);
    await time.pass(60_000);
    expect([first.isHeld(), second.isHeld()]).toEqual([true, false]);
    state.isAway = true;
    await time.pass(durationMs * 1.1 - intervalMs);
    expect([first.isHeld(), second.isHeld()]).toEqual([true, false]);
    await time.pass(durationMs * 1.1);
    expect([first.isHeld(), second.isHeld()]).toEqual([false, true]);
    expect(await acquiring).toBe(2);
    expect(events.filter((event) => event.startsWith("b"))).toEqual(["b waits for a"]);
    state.isAway = false;
    await time.pass(intervalMs);
    expect(await first.whenLost).toBe("b");
    await time.pass(60_000);
    expect([first.isHeld(), second.isHeld()]).toEqual([false, true]);
  });

  test("the wait is a tenth longer than the lease lasts", async () => {
    const { time, storage, createServer } = makeServers();
    const { state, unreliable } = makeUnreliable(storage);
    await createServer("a", unreliable).acquire(signal);
    state.isAway = true;
    const second = createServer("b", { durationMs: 1000 });
    void second.acquire(signal);
    await time.pass(durationMs * 1.1 - 1);
    expect(second.isHeld()).toBe(false);
    // The lease of this process is shorter, so that this can be told from a renewal.
    await time.pass(1);
    expect(second.isHeld()).toBe(true);
  });

  test("it ends when the machine has slept, whatever the monotonic clock says", async () => {
    const { time, createServer } = makeServers();
    const lease = createServer("a");
    await lease.acquire(signal);
    time.wallMs = durationMs;
    expect(lease.isHeld()).toBe(false);
    await time.pass(intervalMs);
    expect(lease.isHeld()).toBe(true);
    time.wallMs = -3_600_000;
    expect(lease.isHeld()).toBe(true);
  });

  test("one that was released, or belonged to an earlier process of the same identity, is taken at once", async () => {
    const { time, createServer, events } = makeServers();
    const first = createServer("a", { identity: () => "machine 1" });
    await first.acquire(signal);
    const second = createServer("a", { identity: () => "machine 1" });
    expect(await second.acquire(signal)).toBe(2);
    await time.pass(intervalMs);
    expect(await first.whenLost).toBe("a");
    const releasing = second.release();
    expect(second.isHeld()).toBe(false);
    await releasing;
    expect(await createServer("b").acquire(signal)).toBe(3);
    expect(events).toEqual([]);
  });

  test("one whose holder has got another identity is taken at once after the next renewal", async () => {
    const { time, createServer, events } = makeServers();
    let identity = "machine 1, without a database";
    await createServer("a", { identity: () => identity }).acquire(signal);
    identity = "machine 1";
    await time.pass(intervalMs);
    const second = createServer("a", { identity: () => "machine 1" });
    expect(await second.acquire(signal)).toBe(2);
    expect(events).toEqual([]);
  });

  test("a release fails quietly when the storage is away or the lease was lost", async () => {
    const { time, storage, events, createServer } = makeServers();
    const { state, unreliable } = makeUnreliable(storage);
    const first = createServer("a", { identity: () => "machine 1", ...unreliable });
    await first.acquire(signal);
    const second = createServer("a", { identity: () => "machine 1" });
    await second.acquire(signal);
    await first.release();
    await time.pass(60_000);
    expect(second.isHeld()).toBe(true);
    const third = createServer("c", { identity: () => "machine 1", ...unreliable });
    await third.acquire(signal);
    state.isAway = true;
    await third.release();
    expect(third.isHeld()).toBe(false);
    expect(events).toEqual(["c: away"]);
  });

  test("a write whose response was lost is recognized as its own", async () => {
    const { time, storage, createServer } = makeServers();
    const { state, unreliable } = makeUnreliable(storage);
    const lease = createServer("a", unreliable);
    state.isLost = true;
    const acquiring = lease.acquire(signal);
    await time.pass(intervalMs);
    expect(lease.isHeld()).toBe(false);
    state.isLost = false;
    await time.pass(intervalMs);
    expect(await acquiring).toBeGreaterThan(0);
    state.isLost = true;
    await time.pass(intervalMs * 1.5);
    state.isLost = false;
    await time.pass(60_000);
    expect(lease.isHeld()).toBe(true);
    state.isLost = true;
    await time.pass(intervalMs);
    state.isLost = false;
    await lease.release();
    expect(JSON.parse(text(await storage.get("lease"))!).isReleased).toBe(true);
  });

  test("storage without conditional writes is rejected", async () => {
    const { storage, createServer } = makeServers();
    const overwrite = async (key: string, body: Uint8Array<ArrayBuffer>) => {
      await storage.put(key, body);
      return "tag";
    };
    const problem = "Cannot use memory: the server does not support conditional writes";
    const refuse = async () => null;
    for (const options of [{ create: overwrite }, { replace: overwrite }, { replace: refuse }]) {
      await storage.remove(["lease"]);
      const lease = createServer("a", options);
      await expectRejection(lease.acquire(signal), "operator", problem);
      expect(lease.isHeld()).toBe(false);
    }
  });

  test("storage that begins to refuse all replacements is reported", async () => {
    const { time, storage, events, createServer } = makeServers();
    let isRefusing = false;
    const lease = createServer("a", {
      replace: async (...args) => (isRefusing ? null : storage.replace(...args)),
    });
    await lease.acquire(signal);
    isRefusing = true;
    await time.pass(durationMs);
    expect(lease.isHeld()).toBe(false);
    const problem = "a: Cannot use memory: the server does not support conditional writes";
    expect(new Set(events)).toEqual(new Set([problem]));
    isRefusing = false;
    await time.pass(intervalMs);
    expect(lease.isHeld()).toBe(true);
  });

  test.each(["", "[]", '{"number":1.5,"durationMs":1}', '{"number":1}'])(
    "an object that is not a lease is an error for the operator: %p",
    async (content) => {
      const { storage, createServer } = makeServers();
      await storage.put("lease", bytes(content));
      const problem = "Cannot use memory: lease is not a lease of this program";
      await expectRejection(createServer("a").acquire(signal), "operator", problem);
    },
  );

  test("acquiring waits for storage that is away, and stops for an operator's error or the signal", async () => {
    const { time, storage, events, createServer } = makeServers();
    const { state, unreliable } = makeUnreliable(storage);
    state.isAway = true;
    const controller = new AbortController();
    const waiting = createServer("a", unreliable).acquire(controller.signal);
    await time.pass(3_000);
    expect(events).toEqual(["a: away", "a: away", "a: away", "a: away"]);
    controller.abort(new AppError("unavailable", "closing"));
    await expectRejection(waiting, "unavailable", "closing");
    const failing = createServer("b", {
      get: () => Promise.reject(new AppError("operator", "no such bucket")),
    });
    await expectRejection(failing.acquire(signal), "operator", "no such bucket");
  });

  test("numbers continue when somebody has deleted the object, whose holder stops", async () => {
    const { time, storage, events, createServer } = makeServers();
    const first = createServer("a");
    await first.acquire(signal);
    await storage.remove(["lease"]);
    const second = createServer("b", { lastNumber: async () => 7 });
    const acquiring = second.acquire(signal);
    await time.pass(intervalMs);
    expect(await first.whenLost).toBeNull();
    expect([first.isHeld(), second.isHeld()]).toEqual([false, false]);
    await time.pass(durationMs * 1.1);
    expect(await acquiring).toBe(8);
    expect(events).toEqual(["b waits for an unknown server"]);
  });

  test("the system's clock sleeps until the time has passed or the signal is aborted", async () => {
    const startMs = systemClock.monotonicMs();
    await systemClock.sleep(1, signal);
    expect(systemClock.monotonicMs()).toBeGreaterThan(startMs);
    const controller = new AbortController();
    const sleeping = systemClock.sleep(3_600_000, controller.signal);
    controller.abort();
    await sleeping;
    await systemClock.sleep(3_600_000, controller.signal);
    expect(new Date(systemClock.wallMs()).getFullYear()).toBeGreaterThan(2025);
  });
});

describe("a lease of simulated servers", () => {
  test.each(Array.from({ length: 40 }, (_, index) => [index + 1]))(
    "at most one server holds it, and nothing acknowledged is lost, in run %d",
    async (run) => {
      const outcome = await simulate(run * 7919);
      expect(outcome.conflicts).toEqual([]);
      expect(outcome.forgotten).toEqual([]);
      expect(new Set(outcome.numbers).size).toBe(outcome.numbers.length);
      expect(outcome.acknowledged).toBeGreaterThan(0);
      expect(outcome.holders).toBe(1);
    },
  );
});
