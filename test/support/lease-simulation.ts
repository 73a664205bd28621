/**
 * Servers that share an archive, in simulated time: their clocks differ, they are suspended and killed, and their
 * requests are lost, delayed and repeated. A server that has taken the lease starts a generation of the archive, which
 * names what it has restored. It uploads objects, and acknowledges each if it holds the lease after the response.
 */
import { AppError } from "../../src/base/error.ts";
import { createLease, type Lease, type LeaseClock } from "../../src/domain/lease.ts";
import type { ObjectStorage } from "../../src/domain/object-storage.ts";
import { bytes, text } from "../object-storage/contract.ts";
import { createMemoryStorage } from "../object-storage/memory.ts";
import { makeRandom } from "./random.ts";

const DURATION_MS = 15_000;
const INTERVAL_MS = 5_000;
const TIMEOUT_MS = 4_000;
const MACHINES = 3;
const FAULTY_MS = 300_000;
const QUIET_MS = 4 * DURATION_MS;

export interface Outcome {
  /** Times at which more than one server held the lease. */
  readonly conflicts: readonly string[];
  /** Acknowledged uploads that are not restored in the end. */
  readonly forgotten: readonly string[];
  /** Numbers of the leases. */
  readonly numbers: readonly number[];
  readonly acknowledged: number;
  /** Servers that hold the lease after some time without faults. */
  readonly holders: number;
}

interface Server {
  readonly name: string;
  readonly identity: string;
  readonly clock: LeaseClock;
  readonly storage: ObjectStorage;
  lease: Lease | null;
  isDead: boolean;
  suspendedUntilMs: number;
  /** How long its monotonic clock has stood still. */
  stoodStillMs: number;
  unreachableUntilMs: number;
}

function createTimeline() {
  let nowMs = 0;
  const events: { readonly atMs: number; readonly run: () => void }[] = [];
  return {
    now: () => nowMs,
    after(ms: number, run: () => void): void {
      const atMs = nowMs + ms;
      const index = events.findLastIndex((event) => event.atMs <= atMs) + 1;
      events.splice(index, 0, { atMs, run });
    },
    async advance(ms: number, check: () => void): Promise<void> {
      const endMs = nowMs + ms;
      for (;;) {
        const [event] = events;
        if (event === undefined || event.atMs > endMs) break;
        events.shift();
        nowMs = event.atMs;
        event.run();
        // Runs all that continues now.
        await new Promise((resolve) => setImmediate(resolve));
        check();
      }
      nowMs = endMs;
    },
  };
}

export async function simulate(seed: number): Promise<Outcome> {
  const random = makeRandom(seed);
  const timeline = createTimeline();
  const shared = createMemoryStorage();
  const servers: Server[] = [];
  const conflicts: string[] = [];
  const numbers: number[] = [];
  const acknowledged: string[] = [];
  let hasFaults = true;

  /** Runs when the server runs. */
  function deliver(server: Server, run: () => void): void {
    if (server.isDead) return;
    const waitMs = server.suspendedUntilMs - timeline.now();
    if (waitMs > 0) timeline.after(waitMs, () => deliver(server, run));
    else run();
  }

  function send<Result>(server: Server, perform: () => Promise<Result>): Promise<Result> {
    const { promise, resolve, reject } = Promise.withResolvers<Result>();
    const fail = () => deliver(server, () => reject(new AppError("unavailable", "no response")));
    const respond = (result: Promise<Result>) =>
      timeline.after(random(200), () => deliver(server, () => resolve(result)));
    timeline.after(TIMEOUT_MS, fail);
    if (hasFaults && timeline.now() < server.unreachableUntilMs) return promise;
    const delayMs = random(200);
    const lateMs = random(3 * DURATION_MS);
    const arrive = (ms: number) => timeline.after(ms, () => void perform());
    const arriveAndRespond = (ms: number) => timeline.after(ms, () => respond(perform()));
    const fate = hasFaults ? random(20) : 20;
    if (fate === 0) return promise;
    // The response is lost.
    if (fate === 1) arrive(delayMs);
    else if (fate === 2) arrive(lateMs);
    else arriveAndRespond(delayMs);
    // It arrives twice. In one case the response is that to the second one.
    if (fate === 3) arrive(delayMs / 2);
    if (fate === 4) arrive(lateMs);
    return promise;
  }

  function start(name: string, identity: string): void {
    const rate = 0.95 + random(95) / 1000;
    const offsetMs = random(1_000_000);
    const server: Server = {
      name,
      identity,
      lease: null,
      isDead: false,
      suspendedUntilMs: 0,
      stoodStillMs: 0,
      unreachableUntilMs: 0,
      clock: {
        monotonicMs: () => (timeline.now() - server.stoodStillMs) * rate + offsetMs,
        wallMs: () => timeline.now() * rate - offsetMs,
        sleep: (ms, signal) =>
          new Promise((resolve) => {
            signal.addEventListener("abort", () => resolve());
            timeline.after(ms / rate, () => deliver(server, resolve));
          }),
      },
      storage: {
        ...shared,
        get: (key) => send(server, () => shared.get(key)),
        put: (key, body) => send(server, () => shared.put(key, body)),
        create: (key, body) => send(server, () => shared.create(key, body)),
        replace: (key, body, tag) => send(server, () => shared.replace(key, body, tag)),
        list: (prefix) => send(server, () => shared.list(prefix)),
      },
    };
    servers.push(server);
    void run(server);
  }

  /** @returns what the newest generation restores, and its number; 0 if there is none */
  async function restore(storage: ObjectStorage): Promise<{ newest: number; keys: string[] }> {
    const generations = await storage.list("generations/");
    const newest = Math.max(0, ...generations.map(({ key }) => Number(key.split("/")[1])));
    const log = await storage.list(`log/${newest}/`);
    const earlier = text(await storage.get(`generations/${newest}`)) ?? "[]";
    return { newest, keys: [...JSON.parse(earlier), ...log.map(({ key }) => key)] };
  }

  /** @returns whether no later server has started one */
  async function startGeneration(storage: ObjectStorage, number: number): Promise<boolean> {
    const { newest, keys } = await restore(storage);
    if (newest >= number) return newest === number;
    const body = bytes(JSON.stringify(keys));
    await storage.create(`generations/${number}`, body);
    return true;
  }

  async function untilDone<Result>(server: Server, work: () => Promise<Result>): Promise<Result> {
    for (;;) {
      try {
        return await work();
      } catch {
        await server.clock.sleep(1000, new AbortController().signal);
      }
    }
  }

  async function run(server: Server): Promise<void> {
    const { name, identity, clock, storage } = server;
    const lease = createLease(storage, {
      key: "lease",
      holder: name,
      identity: () => identity,
      lastNumber: async () => (await restore(storage)).newest,
      durationMs: DURATION_MS,
      intervalMs: INTERVAL_MS,
      clock,
      onWait: () => {},
      onProblem: () => {},
    });
    server.lease = lease;
    let isLost = false;
    void lease.whenLost.then(() => {
      isLost = true;
    });
    const { signal } = new AbortController();
    const number = await lease.acquire(signal);
    numbers.push(number);
    const generation = await untilDone(server, () => startGeneration(storage, number));
    for (let count = 0; generation && !isLost; count++) {
      const key = `log/${number}/${count}`;
      await storage.put(key, bytes(key)).then(
        () => lease.isHeld() && acknowledged.push(key),
        () => {},
      );
      await clock.sleep(random(1000), signal);
    }
    server.isDead = true;
    start(name, identity);
  }

  function check(): void {
    const holders = servers.filter(({ isDead, lease }) => !isDead && lease?.isHeld());
    if (holders.length > 1) {
      conflicts.push(`${timeline.now()}: ${holders.map(({ name }) => name).join(" and ")}`);
    }
  }

  function disturb(server: Server): void {
    const ms = random(3 * DURATION_MS);
    const ways = random(6);
    if (ways === 0) server.unreachableUntilMs = timeline.now() + ms;
    else if (ways === 1) server.suspendedUntilMs = timeline.now() + ms;
    else if (ways === 2) {
      // Its machine sleeps.
      server.suspendedUntilMs = timeline.now() + ms;
      server.stoodStillMs += ms;
    } else if (ways === 3) {
      server.isDead = true;
      // The same machine, or another one.
      start(server.name, random(2) === 0 ? server.identity : crypto.randomUUID());
    } else if (ways === 4) {
      void server.lease?.release();
      server.isDead = true;
      timeline.after(random(1000), () => start(server.name, server.identity));
    }
  }

  function disturbOften(): void {
    const living = servers.filter(({ isDead }) => !isDead);
    const server = living[random(Math.max(1, living.length))];
    if (hasFaults && server !== undefined) disturb(server);
    timeline.after(random(10_000), disturbOften);
  }

  for (let machine = 0; machine < MACHINES; machine++) start(`${machine}`, `machine ${machine}`);
  disturbOften();
  await timeline.advance(FAULTY_MS, check);
  hasFaults = false;
  await timeline.advance(QUIET_MS, check);
  const living = servers.filter(({ isDead }) => !isDead);
  const { keys } = await restore(shared);
  return {
    conflicts,
    forgotten: acknowledged.filter((key) => !keys.includes(key)),
    numbers,
    acknowledged: acknowledged.length,
    holders: living.filter(({ lease }) => lease?.isHeld()).length,
  };
}
