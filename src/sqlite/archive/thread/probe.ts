/** Tries what an archive relies on, before this process follows it or writes to it. */
import { AppError, fail, messageOf } from "../../../base/error.ts";
import { type ObjectStorage, withRetries } from "../../../domain/object-storage.ts";
import type { ServerContext } from "../context.ts";

const CREATES = 8;
/** Some storages accept one write per second and key. */
const PAUSE_MS = 1_500;

/**
 * One of several creates at the same time must win: a storage that checks first and stores later would let two servers
 * write one archive. A later create must lose, and lists must have all objects. @throws {AppError} operator if the storage
 * cannot have an archive, unavailable if that is unknown; the reason of the signal
 */
export async function probe(server: Pick<ServerContext, "storage" | "machine" | "signal" | "log">) {
  const { storage, machine, signal, log } = server;
  const keys: string[] = [];
  const refuse = (problem: string) => fail("operator", `Cannot use ${storage.url}: ${problem}`);
  const sleep = (ms: number) => machine.sleep(ms, signal).then(() => signal.throwIfAborted());
  const retry = (calls: ObjectStorage) => withRetries(calls, { ...machine, sleep });
  const retried = retry(storage);
  let key = "";

  /** Creates an object with a new key. @throws {AppError} unavailable unless it is known that one call has created it */
  async function race(): Promise<void> {
    key = `probe/${machine.newId()}/1`;
    keys.push(key);
    const create = (_: unknown, at: number) => storage.create(key, new Uint8Array([at]));
    const results = await Promise.allSettled(Array.from({ length: CREATES }, create));
    const won = results.map((result) => result.status === "fulfilled" && result.value);
    const stored = await retried.get(key);
    if (won.some((hasWon, at) => hasWon && at !== stored?.[0]))
      refuse("its conditional writes are not atomic, so two servers could write the archive");
    if (won.includes(true)) return;
    const failed = results.find((result) => result.status === "rejected");
    throw failed?.reason ?? new AppError("unavailable", `${key} was not created`);
  }

  try {
    await retry({ ...storage, put: race }).put("probe", new Uint8Array());
    const paused = machine.sleep(PAUSE_MS, signal);
    const other = key.replace(/1$/, "2");
    keys.push(other);
    // As heartbeats are written: a storage that refuses this would get a record with each start.
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
