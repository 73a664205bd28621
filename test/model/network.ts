/** A storage that machines share, and the way of each machine to it, which loses, delays and repeats requests. */
import { AppError } from "../../src/base/error.ts";
import type { ObjectStorage } from "../../src/domain/object-storage.ts";
import { createMemoryStorage, wrapStorage } from "../object-storage/memory.ts";
import type { Host, Process, Scheduler } from "./clock.ts";

/** As of the program. */
const TIMEOUT_MS = 10_000;
/** How long a request that has failed can be under way. */
const LATE_MS = 4_000;

type Body = Uint8Array<ArrayBuffer>;

export function createBucket(scheduler: Scheduler) {
  /** What each change has replaced, in order. */
  const journal: { readonly timeMs: number; readonly key: string; readonly before?: Body }[] = [];

  class Objects extends Map<string, Body> {
    #note(key: string): void {
      const before = this.get(key);
      journal.push({ timeMs: scheduler.nowMs(), key, ...(before && { before }) });
    }
    override set(key: string, body: Body): this {
      this.#note(key);
      return super.set(key, body);
    }
    override delete(key: string): boolean {
      this.#note(key);
      return super.delete(key);
    }
  }

  const objects = new Objects();

  return {
    storage: createMemoryStorage(objects, "s3://model"),
    keys: () => [...objects.keys()].sort(),
    body: (key: string) => objects.get(key),
    delete: (key: string) => objects.delete(key),
    /** @returns how many objects with this prefix were written since then */
    writtenSince: (prefix: string, sinceMs: number) =>
      journal.filter(({ key, timeMs }) => key.startsWith(prefix) && timeMs > sinceMs).length,
    damage(key: string): void {
      const body = objects.get(key)?.slice() ?? new Uint8Array();
      body[body.length - 1] = (body.at(-1) ?? 0) ^ 1;
      objects.set(key, body);
    },
    /** Puts back the state of an earlier time. */
    rollBack(toMs: number): void {
      const later = journal.filter(({ timeMs }) => timeMs > toMs).reverse();
      for (const { key, before } of later)
        if (before === undefined) objects.delete(key);
        else objects.set(key, before);
    },
  };
}

/** What can be wrong with the way of one machine, in percent of its requests where it is a number. */
export const healthy = {
  isCutOut: false,
  isCutBack: false,
  /** Whether what is cut fails soon. */
  isRefused: false,
  errors: 0,
  late: 0,
  twice: 0,
  failsLists: false,
  slowness: 1,
};

export type Conditions = typeof healthy & { readonly latencyMs: number };

const noResponse = (key: string) => new AppError("unavailable", `no response for ${key}`);

/** @param note gets each request, and what became of it */
export function createWay(host: Host, conditions: Conditions, note: (line: string) => void) {
  const { random, scheduler } = host;
  const chance = (percent: number) => random(100) < percent;
  const travelMs = () => {
    const { latencyMs, slowness } = conditions;
    return slowness * (latencyMs / 4 + (latencyMs * random(100)) / 200) + random(10) / 10;
  };

  function send<Result>(process: Process, what: string, apply: () => Promise<Result>) {
    return new Promise<Result>((resolve, reject) => {
      const { failsLists, errors, late, twice } = conditions;
      if (process.isDead()) return;
      const settle = (ms: number, outcome: string, work: () => void) =>
        process.after(ms, () => {
          note(`${process.name} ${what}: ${outcome}`);
          work();
        });
      const fail = (ms: number, outcome: string) =>
        settle(ms, outcome, () => reject(noResponse(what)));
      const cutMs = () => (conditions.isRefused ? travelMs() : TIMEOUT_MS);
      const isError = chance(errors) || (failsLists && what.startsWith("list"));
      if (conditions.isCutOut) return void fail(cutMs(), "lost");
      if (isError && random(2) === 0) return void fail(2 * travelMs(), "rejected");
      const isLate = chance(late);
      if (isLate) fail(TIMEOUT_MS, "late");
      scheduler.after(travelMs() + (isLate ? TIMEOUT_MS + random(LATE_MS) : 0), async () => {
        if (chance(twice)) await apply();
        const result = await apply();
        if (isLate) return undefined;
        if (isError) return void fail(travelMs(), "done, and failed");
        if (conditions.isCutBack) return void fail(cutMs(), "done, no answer");
        const isPlain = result === null || typeof result === "boolean";
        return void settle(travelMs(), isPlain ? `${result}` : "done", () => resolve(result));
      });
    });
  }

  /** @returns the storage as a process on the machine reaches it */
  return (process: Process, storage: ObjectStorage): ObjectStorage =>
    wrapStorage(storage, (call, operation, key) => send(process, `${operation} ${key}`, call));
}
