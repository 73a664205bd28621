/**
 * Follows the log of another server with a copy of its database, and takes over when that server has ended. It asks for
 * the next segment by its key, so nothing is listed.
 */

import { AppError, fail, messageOf, systemCode } from "../../base/error.ts";
import type { ArchiveSettings } from "../../domain/archive.ts";
import { withRetries } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { announceRegularly } from "./announcement.ts";
import { readGeneration } from "./catalog.ts";
import { DIVERGED, RESTORE_AGAIN, type ServerContext } from "./context.ts";
import { type Copy, openCopy } from "./copy.ts";
import {
  baseKey,
  decodeGeneration,
  decodeHead,
  decodeSegment,
  failDamaged,
  type Generation,
  generationKey,
  HEAD_BYTES,
  prefixes,
  type Seal,
  type SegmentHeader,
  type SegmentId,
  slotKey,
} from "./format.ts";
import { failContinued } from "./generation.ts";
import { MAX_SENDING, readHead, seal } from "./log.ts";
import { MAX_LOOKS, orNull, readHeartbeat, readLog } from "./log-reader.ts";
import { markCopy } from "./marker.ts";
import { createProblems, type Problems } from "./problems.ts";
import { isRestorable } from "./restorable.ts";
import type { CopyStart } from "./standby.ts";
import { createStillness, HEARTBEAT_MS, POLL_MS } from "./still.ts";

/** A copy that cannot be continued for so long is restored again. Readers get no data that is as old. */
const MAX_STUCK_MS = 60_000;

/** Of a copy that others read and nobody else writes to. */
export interface FollowOptions
  extends ServerContext,
    Pick<ArchiveSettings, "takeoverMs" | "wasSuperseded"> {
  readonly files: FileDescriptors;
  readonly start: CopyStart;
  readonly nowMs: () => number;
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
  stillness: ReturnType<typeof createStillness>;
  /** What was seen last; `null` before the first look. */
  seen: string | null;
  /** Whether this server has decided to end it. */
  isTakingOver: boolean;
}

interface Following extends FollowOptions, FollowedLog {
  readonly copy: Copy;
  readonly problems: Problems;
  /** The last segment in the copy. */
  last: SegmentId;
  /** Slots to read at once. */
  ahead: number;
  /** How often the next segment was missing although a heartbeat confirms it. */
  missing: number;
  /** Between the heartbeats of the other server. */
  intervalMs: number;
  isPromoted: boolean;
}

function restoreAgain(reason: string): never {
  throw new AppError("unavailable", reason, { cause: RESTORE_AGAIN });
}

/** @param number of the first slot to read */
function beginLog(
  { clock, log }: FollowOptions,
  generation: Generation,
  number: number,
): FollowedLog {
  log("info", "following", { holder: generation.holder, generation: generation.number });
  const next = { generation: generation.number, number };
  const stillness = createStillness(clock);
  return { generation, next, ended: null, stillness, seen: null, isTakingOver: false };
}

/** @throws {AppError} operator if the segment is damaged, or does not continue the copy */
function append(following: Following, id: SegmentId, body: Uint8Array<ArrayBuffer>): void {
  const { copy, generation, path } = following;
  const { header, bytes } = decodeSegment(id, body);
  if (header.writer !== generation.name || !copy.isNext(header))
    failDamaged(slotKey(id), "does not continue the one before it");
  if (!copy.hasRoom(header)) restoreAgain("its WAL was lost");
  if (header.offset === 0) {
    copy.show();
    copy.empty();
    markCopy(path, following.last, [generation.name]);
  }
  copy.append(header, bytes);
  following.last = id;
  following.next = { ...id, number: id.number + 1 };
}

/** Appends what follows in the log, and shows it. */
function appendAll(following: Following, bodies: readonly (Uint8Array<ArrayBuffer> | null)[]) {
  try {
    for (const body of bodies) {
      if (body === null || following.ended !== null) break;
      const head = decodeHead(following.next, body);
      if (head.kind === "segment") append(following, following.next, body);
      else following.ended = head;
    }
  } finally {
    following.copy.show();
  }
}

/** @returns what was seen at the end of the log, as a text; `null` if there is more to read */
async function lookAtLog(following: Following): Promise<string | null> {
  const { storage, next, ahead } = following;
  const ids = Array.from({ length: ahead }, (_, at) => ({ ...next, number: next.number + at }));
  const [bodies, beat] = await Promise.all([
    Promise.all(ids.map((id) => storage.get(slotKey(id)))),
    orNull(readHeartbeat(storage, next.generation)),
  ]);
  appendAll(following, bodies);
  const hasMore = bodies.at(-1) !== null && following.ended === null;
  following.ahead = hasMore ? Math.min(2 * ahead, MAX_SENDING) : 1;
  if (hasMore) return null;
  const { number } = following.next;
  const isMissing = following.ended === null && (beat?.confirmed ?? 0) >= number;
  following.missing = isMissing ? following.missing + 1 : 0;
  if (isMissing && following.missing < MAX_LOOKS) return null;
  if (isMissing) failDamaged(slotKey(following.next), "is missing");
  following.intervalMs = beat?.intervalMs ?? following.intervalMs;
  return `${number} ${beat?.sequence} ${following.ended?.kind}`;
}

/** Looks for a server that continues a log which has ended. @returns as {@link lookAtLog} */
async function lookForNext(following: Following, ended: Seal): Promise<string | null> {
  const { storage, clock } = following;
  const number = ended.generation + 1;
  const [body, promotion] = await Promise.all([
    storage.get(generationKey(number), HEAD_BYTES),
    readHead(storage, { ...ended, number: ended.number + 1 }),
  ]);
  if (body === null) {
    following.isPromoted = [ended, promotion].some(isPromotion);
    return "ended";
  }
  const generation = decodeGeneration(number, body);
  if (generation.continues && generation.previousEnd === ended.number - 1) {
    Object.assign(following, beginLog(following, generation, 1));
    return null;
  }
  // The copy has segments that the archive has lost.
  if (generation.continues) failContinued();
  const lastKey = baseKey({ generation: ended.generation, number: 9_999_999_999 });
  const [base] = await storage.list(prefixes.bases, 1, lastKey);
  if (base !== undefined) restoreAgain("another server has begun anew");
  // That server has begun anew, and is writing its first base.
  following.stillness = createStillness(clock);
  return "";
}

/** @returns whether nothing continues the copy */
function isBroken(error: unknown): boolean {
  return error instanceof AppError && (error.cause === RESTORE_AGAIN || error.cause === DIVERGED);
}

function isPromotion(slot: SegmentHeader | Seal | null): boolean {
  return slot?.kind === "seal" && slot.promoted === true;
}

/** @returns for how long the log must stand still until the other server has ended; infinite if that proves nothing */
function patienceMs(following: Following): number {
  const { ended, generation, isPromoted, intervalMs, takeoverMs, wasSuperseded } = following;
  if (isPromoted) return 0;
  // In async mode, a server that has only lost its storage goes on, and two would write.
  if (ended === null && generation.commit !== "sync") return Number.POSITIVE_INFINITY;
  return Math.max(takeoverMs * (wasSuperseded ? 2 : 1), 2 * intervalMs);
}

/** Reads what is new, and takes over if it is time. @returns when to look again, in ms */
async function step(following: Following): Promise<number> {
  const { storage, holder, clock, nowMs, log, onFresh } = following;
  const startedMs = clock.monotonicMs();
  const { ended } = following;
  const seen = await (ended === null ? lookAtLog(following) : lookForNext(following, ended));
  if (seen === null) return 0;
  // Nobody acknowledges anything in a log that has ended.
  const isFresh = seen === "ended" || (following.seen !== null && following.seen !== seen);
  if (isFresh) onFresh(clock.monotonicMs() - startedMs);
  following.seen = seen;
  const restMs = patienceMs(following) - following.stillness(seen);
  if (!following.isTakingOver && restMs > 0) return Math.min(restMs, POLL_MS);
  const from = following.ended === null ? await requireWhole(following) : null;
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
  const { storage, clock, problems, signal } = following;
  let stuckSinceMs: number | null = null;
  for (;;) {
    signal.throwIfAborted();
    let waitMs = POLL_MS;
    try {
      if (following.isTakingOver && following.ended !== null) return;
      waitMs = await step(following);
      problems.clear("following");
      stuckSinceMs = null;
    } catch (error) {
      const isExpected = error instanceof AppError || /^(?:E[A-Z]|SQLITE_)/.test(systemCode(error));
      if (!isExpected || isBroken(error)) throw error;
      problems.report("following", error);
      const nowMs = clock.monotonicMs();
      stuckSinceMs ??= nowMs;
      if (nowMs - stuckSinceMs > MAX_STUCK_MS) {
        stuckSinceMs = nowMs;
        if (await isRestorable(storage).catch(() => false)) restoreAgain(messageOf(error));
      }
    }
    if (waitMs > 0) await clock.sleep(waitMs, signal);
  }
}

/** @returns whether the WAL is in the database. If a reader prevents it, the next server continues the WAL instead */
function tryEmpty(copy: Copy): boolean {
  try {
    copy.empty();
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns when the copy has all that the archive has, and nobody else can add to it.
 * @returns whether everything is there that the other server has acknowledged, so that the change feed keeps its name
 * @throws {AppError} unavailable with the cause {@link RESTORE_AGAIN} if nothing continues the copy
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
    missing: 0,
    intervalMs: HEARTBEAT_MS,
    isPromoted: false,
  };
  await using _announcing = announceRegularly(
    storage,
    () => ({ holder, takeoverMs, timeMs: nowMs() }),
    (error) => problems.report("following", error),
  );
  try {
    await untilTakenOver(following);
  } catch (error) {
    // Otherwise the next start continues from here.
    if (!isBroken(error)) copy.empty();
    markCopy(path, isBroken(error) ? null : following.last, [following.generation.name]);
    throw error;
  }
  markCopy(path, following.last, [following.generation.name], tryEmpty(copy));
  return following.generation.commit === "sync" || following.ended?.kind === "closed";
}
