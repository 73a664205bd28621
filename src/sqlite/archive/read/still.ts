/** Waits for a server that may be running, so that another one does not take its archive by mistake. */
import type { Clock } from "../../../base/clock.ts";
import type { ServerContext } from "../context.ts";
import { HEAD_BYTES, HEARTBEAT_MS } from "../format.ts";
import { heartbeatKey, type ObjectId } from "../keys.ts";
import { readHead } from "./catalog.ts";

/** A server that has written nothing for this long is taken for dead. If it is not, it can store nothing more. */
const STILL_MS = HEARTBEAT_MS + 1_500;
export const STORAGE_POLL_MS = 500;

/** @returns how long a server with this interval of heartbeats must have written nothing before a standby takes over */
export function patienceMs(
  { takeoverMs, wasSuperseded }: Pick<ServerContext, "takeoverMs" | "wasSuperseded">,
  intervalMs: number,
): number {
  return Math.max(takeoverMs * (wasSuperseded ? 2 : 1), 2 * intervalMs);
}

/** @returns a function that returns for how long a state has been the same, in ms, without pauses of process and storage */
export function createStillness(clock: Clock): (state: string) => number {
  let seen: string | null = null;
  let stillMs = 0;
  let lastMs = clock.monotonicMs();
  return (state) => {
    const nowMs = clock.monotonicMs();
    stillMs = state === seen ? stillMs + Math.min(nowMs - lastMs, 2 * STORAGE_POLL_MS) : 0;
    seen = state;
    lastMs = nowMs;
    return stillMs;
  };
}

type Waiting = Pick<ServerContext, "storage" | "machine" | "signal">;

/** More than the requests of a server that has ended, which may still be under way. */
const MAX_CHANGES = 4;

/**
 * @param next the first empty slot of the log. @param givesUp whether it does not wait for a server that is running
 * @returns when neither the heartbeat nor the log has changed for long enough, or the log has ended; `false` if it gives up.
 * It throws the reason of the signal
 */
export async function untilStill(server: Waiting, next: ObjectId, givesUp = false) {
  const { storage, machine, signal } = server;
  const { generation } = next;
  let { number } = next;
  const observe = createStillness(machine);
  for (let changes = 0; ; ) {
    signal.throwIfAborted();
    const [beat, slot] = await Promise.all([
      storage.get(heartbeatKey(generation), HEAD_BYTES),
      readHead(storage, { generation, number }),
    ]);
    if (slot !== null && slot.kind !== "segment") return true;
    if (slot !== null) number += 1;
    const stillMs = observe(`${number} ${new TextDecoder().decode(beat ?? new Uint8Array())}`);
    if (stillMs >= STILL_MS) return true;
    if (stillMs === 0) changes += 1;
    if (givesUp && changes > MAX_CHANGES) return false;
    await machine.sleep(Math.min(STORAGE_POLL_MS, STILL_MS - stillMs), signal);
  }
}
