/**
 * Follows the log of another server with a copy of its database, and takes over when that server has ended. It asks for
 * the next segment by its key, so nothing is listed.
 */

import { existsSync } from "node:fs";
import { AppError, fail, messageOf, systemCode } from "../../base/error.ts";
import type { ArchiveSettings } from "../../domain/archive.ts";
import { withRetries } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { discard } from "../file/files.ts";
import { announceRegularly } from "./announcement.ts";
import { readGeneration } from "./catalog.ts";
import { endsCopy, failCopyBroken, type ServerContext } from "./context.ts";
import { type Copy, openCopy } from "./copy.ts";
import {
  damageOf,
  decodeContents,
  decodeGeneration,
  decodeHead,
  type Generation,
  HEAD_BYTES,
  type Seal,
  type SegmentHeader,
} from "./format.ts";
import { failContinued } from "./generation.ts";
import { baseKey, generationKey, prefixes, type SegmentId, slotKey } from "./keys.ts";
import { MAX_SENDING, readHead, seal } from "./log.ts";
import { orNull, readHeartbeat, readLog } from "./log-reader.ts";
import { markCopy } from "./marker.ts";
import { createProblems, type Problems } from "./problems.ts";
import { isRestorable } from "./restorable.ts";
import type { CopyStart } from "./standby.ts";
import { createStillness, HEARTBEAT_MS, STORAGE_POLL_MS } from "./still.ts";

/** After this long without progress, the copy is restored. Reads are rejected by then, because it is too old. */
const MAX_STUCK_MS = 60_000;

/** Options of {@link follow}. Other connections read the copy, and none of them writes to it. */
export interface FollowOptions
  extends ServerContext,
    Pick<ArchiveSettings, "takeoverMs" | "wasSuperseded"> {
  readonly files: FileDescriptors;
  readonly start: CopyStart;
  /** Called when the copy has everything that the other server had acknowledged, with the age of that proof. */
  readonly onFresh: (ageMs: number) => void;
}

/** The log that is followed. */
interface FollowedLog {
  generation: Generation;
  /** The slot after the last segment in the copy. */
  next: SegmentId;
  /** Where the log ends; `null` until that was read. */
  ended: Seal | null;
  stillMsOf: ReturnType<typeof createStillness>;
  /** The last segment that a heartbeat has confirmed. */
  confirmed: number;
  /** What the last look has found at its end; `null` before the first look. */
  state: string | null;
  /** Whether this server has decided to end it. */
  isTakingOver: boolean;
}

interface Following extends FollowOptions, FollowedLog {
  readonly copy: Copy;
  readonly problems: Problems;
  last: SegmentId;
  /** Slots to read at once. */
  ahead: number;
  intervalMs: number;
}

/** @param number of the first slot to read */
function beginLog(
  { clock, log }: FollowOptions,
  generation: Generation,
  number: number,
): FollowedLog {
  log("info", "following", { holder: generation.holder, generation: generation.number });
  const next = { generation: generation.number, number };
  const stillMsOf = createStillness(clock);
  return {
    generation,
    next,
    ended: null,
    stillMsOf,
    confirmed: 0,
    state: null,
    isTakingOver: false,
  };
}

/** What a look at the archive has found. */
type Look =
  | { readonly found: "more to read" }
  /** The state changes as long as the other server runs. */
  | { readonly found: "the end"; readonly state: string }
  /** The log has ended, and no server has continued it. */
  | { readonly found: "no successor"; readonly isPromoted: boolean }
  /** A server has begun anew, and is writing its first base. */
  | { readonly found: "no base" };

/** @throws {AppError} if the segment is damaged, or does not continue the copy */
function append(following: Following, header: SegmentHeader, body: Uint8Array<ArrayBuffer>): void {
  const { copy, generation, path, next, last } = following;
  if (header.writer !== generation.name || !copy.isNext(header))
    fail("unavailable", `${slotKey(next)} does not continue the one before it`);
  if (!copy.canAppend(header)) failCopyBroken("its WAL was lost");
  const bytes = decodeContents(header, body);
  if (header.offset === 0) {
    copy.show();
    const problem = copy.truncateWal();
    if (problem !== null) fail("unavailable", problem);
    markCopy(path, last, generation.name);
  }
  copy.append(header, bytes);
  following.last = next;
  following.next = { ...next, number: next.number + 1 };
}

/** Appends what follows in the log, and shows it. */
function appendAll(following: Following, bodies: readonly (Uint8Array<ArrayBuffer> | null)[]) {
  try {
    for (const body of bodies) {
      if (body === null || following.ended !== null) break;
      const head = decodeHead(following.next, body);
      if (head.kind === "segment") append(following, head, body);
      else following.ended = head;
    }
  } finally {
    following.copy.show();
  }
}

async function lookAtLog(following: Following): Promise<Look> {
  const { storage, next, ahead } = following;
  const ids = Array.from({ length: ahead }, (_, at) => ({ ...next, number: next.number + at }));
  const [bodies, beat] = await Promise.all([
    Promise.all(ids.map((id) => storage.get(slotKey(id)))),
    orNull(readHeartbeat(storage, next.generation)),
  ]);
  appendAll(following, bodies);
  const isAtEnd = bodies.includes(null) && following.ended === null;
  following.ahead = isAtEnd ? 1 : Math.min(2 * ahead, MAX_SENDING);
  if (!isAtEnd) return { found: "more to read" };
  const { number } = following.next;
  // `confirmed` is from an earlier look, so that segment was stored before this one began.
  if (following.confirmed >= number) fail("unavailable", `${slotKey(following.next)} is missing`);
  following.confirmed = beat?.confirmed ?? 0;
  if (following.confirmed >= number) return { found: "more to read" };
  following.intervalMs = beat?.intervalMs ?? following.intervalMs;
  return { found: "the end", state: `${number} ${beat?.sequence}` };
}

/** Looks for a server that continues a log which has ended. */
async function lookForNext(following: Following, ended: Seal): Promise<Look> {
  const { storage } = following;
  const number = ended.generation + 1;
  const [body, promotion] = await Promise.all([
    storage.get(generationKey(number), HEAD_BYTES),
    readHead(storage, { ...ended, number: ended.number + 1 }),
  ]);
  if (body === null) {
    const isPromoted = [ended, promotion].some((slot) => slot?.kind === "seal" && slot.promoted);
    return { found: "no successor", isPromoted };
  }
  const generation = decodeGeneration(number, body);
  if (generation.continues && generation.previousEnd === ended.number - 1) {
    Object.assign(following, beginLog(following, generation, 1));
    return { found: "more to read" };
  }
  // The copy has segments that the archive has lost.
  if (generation.continues) failContinued();
  const [base] = await storage.list(prefixes.bases, 1, baseKey({ generation: number, number: 0 }));
  if (base !== undefined) failCopyBroken("another server has begun anew");
  return { found: "no base" };
}

/** @returns for how long the log must stand still until the other server has ended; infinite if that proves nothing */
function patienceMs(following: Following): number {
  const { ended, generation, intervalMs, takeoverMs, wasSuperseded } = following;
  // In async mode, a server that has only lost its storage goes on, and two would write.
  if (ended === null && generation.commit !== "sync") return Number.POSITIVE_INFINITY;
  return Math.max(takeoverMs * (wasSuperseded ? 2 : 1), 2 * intervalMs);
}

/** Reads what is new, and takes over if it is time. @returns when to look again, in ms */
async function step(following: Following): Promise<number> {
  const { storage, holder, clock, nowMs, log, onFresh } = following;
  const startedMs = clock.monotonicMs();
  const { ended } = following;
  const look = await (ended === null ? lookAtLog(following) : lookForNext(following, ended));
  if (look.found === "more to read") return 0;
  if (look.found === "no base") return STORAGE_POLL_MS;
  const state = look.found === "the end" ? look.state : look.found;
  // Nobody acknowledges anything in a log that has ended.
  const isFresh = ended !== null || (following.state !== null && following.state !== state);
  if (isFresh) onFresh(clock.monotonicMs() - startedMs);
  following.state = state;
  const stillMs = following.stillMsOf(state);
  const isPromoted = look.found === "no successor" && look.isPromoted;
  const restMs = isPromoted ? 0 : patienceMs(following) - stillMs;
  if (!following.isTakingOver && restMs > 0) return Math.min(restMs, STORAGE_POLL_MS);
  const from = ended === null ? await requireWhole(following) : null;
  if (!following.isTakingOver) log("warn", "taking over", { holder: following.generation.holder });
  following.isTakingOver = true;
  if (from !== null) await seal(storage, from, { writer: crypto.randomUUID(), holder }, nowMs());
  return 0;
}

/**
 * @returns the slot to seal
 * @throws {AppError} unavailable if a segment is missing that others confirm
 * @throws {AppError} as {@link failContinued}
 */
async function requireWhole({ storage, next }: Following): Promise<SegmentId> {
  const record = await storage.get(generationKey(next.generation + 1), HEAD_BYTES);
  const { loss, sealFrom, isSealed } = await readLog(storage, next, null, 0);
  if (loss !== null) fail("unavailable", loss);
  if (record !== null && !isSealed) failContinued();
  return sealFrom;
}

/** Steps until the copy has all of a log that this server may continue. @throws the reason of the signal */
async function untilTakenOver(following: Following): Promise<void> {
  const { path, storage, clock, problems, signal } = following;
  let stuckSinceMs: number | null = null;
  for (;;) {
    signal.throwIfAborted();
    if (!existsSync(path)) failCopyBroken("its file was deleted");
    let waitMs = STORAGE_POLL_MS;
    try {
      if (following.isTakingOver && following.ended !== null) return;
      waitMs = await step(following);
      problems.clear("following");
      stuckSinceMs = null;
    } catch (error) {
      const isExpected = error instanceof AppError || /^(?:E[A-Z]|SQLITE_)/.test(systemCode(error));
      if (!isExpected || endsCopy(error)) throw error;
      problems.report("following", error);
      const nowMs = clock.monotonicMs();
      stuckSinceMs ??= nowMs;
      if (nowMs - stuckSinceMs > MAX_STUCK_MS) {
        stuckSinceMs = nowMs;
        const damaged = damageOf(error) === null ? null : following.next;
        if (await isRestorable(storage, damaged).catch(() => false))
          failCopyBroken(messageOf(error));
      }
    }
    if (waitMs > 0) await clock.sleep(waitMs, signal);
  }
}

/**
 * Returns when the copy has all that the archive has, and nobody else can add to it.
 * @returns whether everything is there that the other server has acknowledged, so that the change feed keeps its name
 * @throws {AppError} with a cause of {@link endsCopy} if nothing continues the copy
 * @throws the reason of the signal
 */
export async function follow(options: FollowOptions): Promise<boolean> {
  const { path, files, start, storage, holder, takeoverMs, nowMs, log } = options;
  using copy = openCopy(path, files, start.end);
  const generation = await readGeneration(withRetries(storage), start.last.generation);
  const problems = createProblems(log);
  const following: Following = {
    ...options,
    ...beginLog(options, generation, start.last.number + 1),
    copy,
    problems,
    last: start.last,
    ahead: 1,
    intervalMs: HEARTBEAT_MS,
  };
  const own = { holder, takeoverMs };
  await using _announcing = announceRegularly(storage, own, nowMs, (error) =>
    problems.report("following", error),
  );
  try {
    await untilTakenOver(following);
  } catch (error) {
    // Otherwise the next start continues from here.
    const { name } = following.generation;
    if (!existsSync(path)) discard(path);
    else if (endsCopy(error)) markCopy(path, null, name);
    else if (copy.truncateWal() === null) markCopy(path, following.last, name);
    throw error;
  }
  // Otherwise the next server continues the WAL.
  const isInFile = copy.truncateWal() === null;
  markCopy(path, following.last, following.generation.name, isInFile);
  return following.generation.commit === "sync" || following.ended?.kind === "closed";
}
