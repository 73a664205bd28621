/** Tries what an archive relies on, before this process follows it or writes to it. */
import { AppError, fail, messageOf } from "../../../base/error.ts";
import { withRetries } from "../../../domain/object-storage.ts";
import type { ServerContext } from "../context.ts";

const CREATES = 8;
const MAX_RACES = 3;
/** Some storages accept one write per second and key. */
const PAUSE_MS = 1_500;

/**
 * One of several creates at the same time must win: a storage that checks first and stores later would let two servers
 * write one archive. A later create must lose, and lists must have all objects.
 * @throws {AppError} operator if the storage cannot have an archive, unavailable if that is unknown
 * @throws the reason of the signal
 */
export async function probe(server: Pick<ServerContext, "storage" | "machine" | "signal" | "log">) {
  const { storage, machine, signal, log } = server;
  const keys: string[] = [];
  const refuse = (problem: string) => fail("operator", `Cannot use ${storage.url}: ${problem}`);
  const sleep = (ms: number) => machine.sleep(ms, signal).then(() => signal.throwIfAborted());
  const retried = withRetries(storage, { ...machine, sleep });

  /** @returns the key of an object that is known to have been created */
  async function race(left = MAX_RACES): Promise<string> {
    const key = `probe/${machine.newId()}/1`;
    keys.push(key);
    const create = (_: unknown, at: number) => storage.create(key, new Uint8Array([at]));
    const results = await Promise.allSettled(Array.from({ length: CREATES }, create));
    const won = results.map((result) => result.status === "fulfilled" && result.value);
    const stored = await retried.get(key);
    if (won.some((hasWon, at) => hasWon && at !== stored?.[0]))
      refuse("its conditional writes are not atomic, so two servers could write the archive");
    if (won.includes(true)) return key;
    const failed = results.find((result) => result.status === "rejected");
    const reason = failed?.reason ?? new AppError("unavailable", `${key} was not created`);
    if (reason.code !== "unavailable" || left === 1) throw reason;
    await sleep(1_000 + 4_000 * machine.random());
    return race(left - 1);
  }

  try {
    const key = await race();
    const paused = machine.sleep(PAUSE_MS, signal);
    const other = key.replace(/1$/, "2");
    keys.push(other);
    // Heartbeats replace objects: a storage that refuses this would get a record with each start.
    await retried.put(other, new Uint8Array(1));
    const listed = await retried.list(key.slice(0, -1), undefined, undefined, 1);
    if (listed.map((object) => object.key).join() !== `${key},${other}`)
      refuse("its lists do not have exactly the objects that exist");
    await paused;
    signal.throwIfAborted();
    if (await retried.create(key, new Uint8Array([CREATES])))
      refuse("it does not support conditional writes");
  } finally {
    await storage.remove(keys).catch((error: unknown) => {
      log("warn", "archive probes not deleted", { reason: messageOf(error) });
    });
  }
}
