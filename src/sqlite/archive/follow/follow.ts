/** Follows the log of another server by the keys of its segments, with a copy of its database, and takes over at its end. */
import { AppError, fail, messageOf } from "../../../base/error.ts";
import { withRetries } from "../../../domain/object-storage.ts";
import { endsCopy, failCopyBroken, isExpected, type ServerContext } from "../context.ts";
import type { Generation, Heartbeat, Seal, SegmentHeader } from "../format.ts";
import * as format from "../format.ts";
import { isSameSegment, type ObjectId, shift, slotKey } from "../keys.ts";
import { type Copy, type DatabaseFiles, isSamePosition, type OpenDatabase } from "../machine.ts";
import { createProblems } from "../problems.ts";
import * as catalog from "../read/catalog.ts";
import { createStillness, patienceMs, STORAGE_POLL_MS } from "../read/still.ts";
import { announceRegularly } from "../write/announcement.ts";
import { type Continuation, failContinued } from "../write/generation.ts";
import { createRecord, seal, sealerOf } from "../write/log.ts";
import { type LookAtAnew, watchAnew } from "./anew.ts";
import { type CopyStart, markCopy } from "./prepare.ts";

/**
 * After this long without progress, the copy is restored if the archive leads to its end without what it lacks: if it lacks
 * nothing, when reads are rejected because it is too old.
 */
const [MAX_LACK_MS, MAX_STUCK_MS] = [10_000, 60_000];
/**
 * Segments that are read at the same time: enough to keep up with a server that stores 1,250 a second, 2,000 writes, when
 * each read takes 100 ms (bench/takeover.ts, `follow`). Of those behind the first ones, only as much as most of them have,
 * in all at most 12 MiB: a longer one is read again when it is among the first.
 */
const [MAX_AHEAD, MAX_WHOLE] = [192, format.MAX_SENDING];

/** Other connections read the copy, and none of them writes to it. */
interface FollowOptions extends ServerContext {
  readonly database: OpenDatabase;
  readonly start: CopyStart;
  /** Called when the copy has everything that the other server had acknowledged, with the age of that proof. */
  readonly onFresh: (ageMs: number) => void;
}

function beginLog(options: FollowOptions, generation: Generation, number: number) {
  const { machine, log } = options;
  const following = { holder: generation.holder, generation: generation.number };
  log("info", "following", { ...following, takeover_seconds: patienceMs(options, 0) / 1000 });
  return {
    generation,
    /** The slot after the last segment in the copy. */
    next: { generation: generation.number, number },
    ended: null as Seal | null,
    observe: createStillness(machine),
    confirmed: 0,
    /** An empty slot ahead, and when the look at it began; `null` if none is known. */
    empty: null as { readonly number: number; readonly lookedMs: number } | null,
    isLooking: false,
    lookAtAnew: null as LookAtAnew | null,
    isTakingOver: false,
  };
}

type Following = ReturnType<typeof createFollowing>;

function createFollowing(options: FollowOptions, copy: Copy, generation: Generation) {
  const { start, machine, log, onWaiting } = options;
  return {
    ...options,
    ...beginLog(options, generation, start.last.number + 1),
    // Of the last segment in the copy.
    ...start,
    copy,
    problems: createProblems(log, machine, onWaiting),
    ahead: 1,
    intervalMs: format.HEARTBEAT_MS,
    /** When the last look began that has found the end of the log. */
    freshMs: machine.monotonicMs(),
    /** The key of what cannot be read; `null` if nothing is missed. */
    lacks: null as string | null,
    /** What is waited for, other than a log that goes on; `null` if nothing is. */
    waitsFor: null as string | null,
    /** The base to which the copy belongs, when the end was looked at for long; `null` before. */
    base: null as ReturnType<typeof catalog.findBaseOf> | null,
    /** How this server continues the archive, the same in each attempt; `null` until it may. */
    claim: null as { record: Generation; hasAll: boolean; isInFile: boolean } | null,
  };
}

function append(following: Following, header: SegmentHeader, body: Uint8Array<ArrayBuffer>): void {
  const { copy, generation, files, next, last, end } = following;
  const isNext = end === null || isSamePosition(header.previous, end);
  if (header.writer !== generation.name || !isNext)
    fail("unavailable", `${slotKey(next)} does not continue the one before it`);
  const bytes = format.decodeContents(header, body);
  if (header.offset === 0) {
    copy.show();
    const problem = copy.truncateWal();
    if (problem !== null) fail("unavailable", problem);
    markCopy(files, last, generation.name);
  }
  if (!copy.append(header, bytes)) failCopyBroken("its WAL was lost");
  Object.assign(following, { last: next, end: header.end, timeMs: header.timeMs, lacks: null });
  following.next = shift(next, 1);
}

type Read = PromiseSettledResult<Uint8Array<ArrayBuffer> | null>;

/** Appends what follows in the log, and shows it. @returns how many of the reads it has used */
function appendAll(following: Following, reads: readonly Read[]): number {
  let used = 0;
  try {
    for (const read of reads) {
      const body = read.status === "fulfilled" ? read.value : null;
      const isCut = used >= MAX_WHOLE && body !== null && body.length >= format.HEAD_BYTES;
      if (body === null || isCut || following.ended !== null) break;
      const head = format.decodeHead(following.next, body);
      if (head.kind === "segment") append(following, head, body);
      else following.ended = head;
      used += 1;
    }
  } catch (error) {
    if (format.damageOf(error) !== null) following.lacks = slotKey(following.next);
    throw error;
  } finally {
    following.copy.show();
  }
  return used;
}

/** The copy has everything that was acknowledged before this time. */
function noteFresh(following: Following, lookedMs: number): void {
  following.freshMs = Math.max(following.freshMs, lookedMs);
  following.lacks = null;
  following.onFresh(following.machine.monotonicMs() - following.freshMs);
}

/** Looks for an empty slot far ahead: in doubling steps, then between the last two. It does not fail. */
async function lookAhead(following: Following): Promise<void> {
  const { storage, machine, next, generation } = following;
  let [full, empty] = [next.number, Number.POSITIVE_INFINITY];
  while (empty - full > MAX_AHEAD) {
    const step = Math.min(Math.max(MAX_AHEAD, full - next.number), (empty - full) / 2);
    const number = full + Math.ceil(step);
    const lookedMs = machine.monotonicMs();
    const body = await storage.get(slotKey({ ...next, number }), 1).catch(() => undefined);
    if (body === undefined || following.generation !== generation) return;
    if (body === null) {
      empty = number;
      following.empty = { number, lookedMs };
    } else full = number;
  }
}

/** What was acknowledged before a look at an empty slot is in front of it: so the age is known before the end is reached. */
function noteEmpty(following: Following): void {
  const { machine, empty, next, freshMs, intervalMs } = following;
  if (empty !== null && next.number >= empty.number) {
    following.empty = null;
    noteFresh(following, empty.lookedMs);
  }
  const isLate = machine.monotonicMs() - freshMs > intervalMs;
  if (empty !== null || !isLate || following.isLooking) return;
  following.isLooking = true;
  void lookAhead(following).finally(() => {
    following.isLooking = false;
  });
}

function failLacking(following: Following, id: ObjectId, problem: string): never {
  following.lacks = slotKey(id);
  fail("unavailable", `waiting for a base of the primary: ${problem}`);
}

function noteBeat(following: Following, beat: Heartbeat | null): boolean {
  const { next, confirmed } = following;
  // It is from an earlier look, so that segment was stored before this one began.
  if (confirmed >= next.number) failLacking(following, next, `${slotKey(next)} is missing`);
  following.confirmed = beat?.confirmed ?? 0;
  following.intervalMs = beat?.intervalMs ?? following.intervalMs;
  return following.confirmed < next.number;
}

/** Reads what is next. @returns what changes as long as the other server runs; `null` if there may be more to read */
async function lookAtLog(following: Following): Promise<string | null> {
  const { storage, machine, next, ahead } = following;
  const startedMs = machine.monotonicMs();
  const reads = Array.from({ length: ahead }, (_, at) => {
    const key = slotKey(shift(next, at));
    return at < MAX_WHOLE ? storage.get(key) : storage.get(key, format.HEAD_BYTES);
  });
  const beating = catalog.orNull(catalog.readHeartbeat(storage, next.generation));
  const [beat, ...found] = await Promise.allSettled([beating, ...reads]);
  const used = appendAll(following, found);
  following.ahead = Math.min(Math.max(2 * used, 1), MAX_AHEAD);
  noteEmpty(following);
  const stop = found[used];
  if (stop?.status === "rejected" && used === 0) throw stop.reason;
  const isEmpty = stop?.status === "fulfilled" && stop.value === null;
  if (!isEmpty || following.ended !== null) return null;
  if (beat.status === "rejected") throw beat.reason;
  if (!noteBeat(following, beat.value)) return null;
  noteFresh(following, startedMs);
  return `${following.next.number} ${beat.value?.sequence}`;
}

function lookForBase(following: Following): ReturnType<typeof catalog.findBaseOf> {
  following.base ??= catalog.findBaseOf(following.storage, following.last).catch((error) => {
    following.base = null;
    throw error;
  });
  // It is awaited later.
  following.base.catch(() => {});
  return following.base;
}

/** @returns for how much longer the state must not change until this server may take over, in ms; 0 if it may */
function noteState(following: Following, state: string): number {
  const { ended, generation, intervalMs } = following;
  const neededMs = patienceMs(following, intervalMs);
  const stillMs = following.observe(state);
  if (stillMs === 0) Object.assign(following, { base: null, isTakingOver: false });
  else if (2 * stillMs >= neededMs) void lookForBase(following);
  const { isTakingOver } = following;
  if (isTakingOver || stillMs < neededMs) return isTakingOver ? 0 : neededMs - stillMs;
  // In async mode, only a closed log proves that its server has no writes which the archive lacks.
  if (generation.commit === "sync" || ended?.kind === "closed") return 0;
  const advice = "or `user-api archive promote`, which gives up what the archive lacks";
  following.waitsFor = `waiting for the last primary, ${advice}: ${generation.holder} writes nothing`;
  return STORAGE_POLL_MS;
}

function canWrite(files: DatabaseFiles): boolean {
  try {
    files.requireWritable();
    return true;
  } catch {
    return false;
  }
}

function beginTakeOver(following: Following): void {
  const { log, files, generation, isTakingOver } = following;
  // Otherwise no server would write.
  files.requireWritable();
  if (!isTakingOver) log("warn", "taking over", { holder: generation.holder });
  following.isTakingOver = true;
}

/** @returns the slot to seal. @throws {AppError} unavailable if a segment is missing that others confirm */
async function requireWhole(following: Following): Promise<ObjectId> {
  const { storage, next } = following;
  const record = await catalog.findGeneration(storage, next.generation + 1);
  const { segments, loss, sealFrom, isSealed } = await catalog.readLog(storage, next);
  if (loss !== null) failLacking(following, shift(next, segments.length), loss);
  if (record !== null && !isSealed) failContinued();
  return sealFrom;
}

/** @param end of the newest log, which is sealed. @param hasAll whether nothing is missing that was acknowledged */
function prepareClaim(following: Following, ended: Seal, end: ObjectId, hasAll: boolean): void {
  const { files, copy, machine, generation, commit, last } = following;
  // Otherwise this server continues the WAL.
  const isInFile = copy.truncateWal() === null;
  const record: Generation = {
    number: end.generation + 1,
    archive: generation.archive,
    name: machine.newId(),
    previousEnd: end.number,
    parent: shift(ended, -1),
    identity: files.lockIdentity(),
    holder: files.holder,
    commit,
  };
  markCopy(files, last, generation.name, isInFile, [record.name]);
  following.claim = { record, hasAll, isInFile };
}

function continueWith(following: Following, ended: Seal, generation: Generation): void {
  const { parent } = generation;
  const end = shift(ended, -1);
  if (isSameSegment(parent, end))
    return void Object.assign(following, beginLog(following, generation, 1));
  // The copy has segments that the archive has lost.
  if (parent?.generation === end.generation) failContinued();
  if (parent !== null && parent.generation < end.generation)
    failCopyBroken(`generation ${end.generation} counts for nothing`);
  following.lookAtAnew ??= watchAnew(following, end.generation, generation);
}

/** Looks for a server that continues a log which has ended. @returns when to look again, in ms */
async function lookForNext(following: Following, ended: Seal): Promise<number> {
  const { storage, machine, generation, isTakingOver } = following;
  const startedMs = machine.monotonicMs();
  const next = await catalog.findGeneration(storage, ended.generation + 1);
  if (next !== null) {
    continueWith(following, ended, next);
    return 0;
  }
  // Nothing is acknowledged in a log that has ended.
  noteFresh(following, startedMs);
  const mayEnd = isTakingOver || (await catalog.isPromoted(storage, ended));
  const restMs = mayEnd ? 0 : noteState(following, "ended");
  if (restMs > 0) return Math.min(restMs, STORAGE_POLL_MS);
  beginTakeOver(following);
  const hasAll = generation.commit === "sync" || ended.kind === "closed";
  prepareClaim(following, ended, shift(ended, -1), hasAll);
  return 0;
}

/** Looks at those who have begun anew. @returns when to look again, in ms */
async function lookForAnew(following: Following, ended: Seal, look: LookAtAnew): Promise<number> {
  const startedMs = following.machine.monotonicMs();
  const found = await look();
  if (found.found === "a base") failCopyBroken("another server has begun anew");
  if (found.found === "nothing") {
    following.waitsFor = found.waitsFor;
    if (found.isFresh) noteFresh(following, startedMs);
    return STORAGE_POLL_MS;
  }
  if (found.found === "the end") prepareClaim(following, ended, found.end, found.hasAll);
  else continueWith(following, ended, found.generation);
  return 0;
}

/** Reads what is new, and prepares a claim if it is time. @returns when to look again, in ms */
async function step(following: Following): Promise<number> {
  const { storage, ended, lookAtAnew } = following;
  following.waitsFor = null;
  if (ended !== null && lookAtAnew !== null) return lookForAnew(following, ended, lookAtAnew);
  if (ended !== null) return lookForNext(following, ended);
  const state = await lookAtLog(following);
  const restMs = state === null ? 0 : noteState(following, state);
  if (state === null || restMs > 0) return Math.min(restMs, STORAGE_POLL_MS);
  const from = await requireWhole(following);
  beginTakeOver(following);
  await seal(storage, from, sealerOf(following), format.MAX_SENDING);
  return 0;
}

/** @returns how this server continues the archive; `null` if it has no claim yet, or another server was faster */
async function takeOver(following: Following) {
  const { files, storage, claim, last, end: previous, timeMs, generation } = following;
  if (claim === null) return null;
  const { record, hasAll } = claim;
  const base = lookForBase(following);
  if (await createRecord(storage, record)) {
    const { newest, damage } = await base;
    const since = { previous, last, timeMs: Math.max(timeMs, newest?.timeMs ?? 0) };
    const continuation: Continuation = { generation: record, ...since, newest, damage };
    return { continuation, hasAll };
  }
  Object.assign(following, { claim: null, isTakingOver: false });
  markCopy(files, last, generation.name, claim.isInFile);
  return null;
}

/** Steps until the copy has all of a log that this server may continue. @throws the reason of the signal */
async function untilTakenOver(following: Following, announce: () => void) {
  const { files, storage, machine, problems, signal } = following;
  let stuckSinceMs: number | null = null;
  for (;;) {
    signal.throwIfAborted();
    if (files.state() === "") failCopyBroken("its file was deleted");
    const { lacks } = following;
    let waitMs = STORAGE_POLL_MS;
    try {
      const takenOver = await takeOver(following);
      if (takenOver !== null) return takenOver;
      waitMs = await step(following);
      const { waitsFor } = following;
      if (waitsFor === null) problems.clear("following");
      else problems.report("following", new AppError("unavailable", waitsFor));
      stuckSinceMs = null;
    } catch (error) {
      if (!isExpected(error) || endsCopy(error)) throw error;
      problems.report("following", error);
      const nowMs = machine.monotonicMs();
      stuckSinceMs ??= nowMs;
      if (nowMs - stuckSinceMs > (following.lacks === null ? MAX_STUCK_MS : MAX_LACK_MS)) {
        stuckSinceMs = nowMs;
        const damaged = format.damageOf(error) === null ? null : following.next;
        if (await catalog.isRestorable(storage, damaged).catch(() => false))
          failCopyBroken(messageOf(error));
      }
    }
    if (following.lacks !== lacks) announce();
    if (waitMs > 0) await machine.sleep(waitMs, signal);
  }
}

/**
 * Returns when the copy has all that the archive has, and this server has begun the next generation. Until then, the copy
 * can be read. `hasAll` is whether it has everything that the other server has acknowledged.
 * @throws {AppError} with a cause of {@link endsCopy} if nothing continues the copy; the reason of the signal
 */
export async function follow(options: FollowOptions) {
  const { files, database, start, storage, machine } = options;
  using copy = database.openCopy(start.end);
  const retried = withRetries(storage, machine);
  const generation = await catalog.readGeneration(retried, start.last.generation);
  const following = createFollowing(options, copy, generation);
  const state = () => ({ lacks: following.lacks, canWrite: canWrite(files) });
  using announcing = announceRegularly(options, state);
  try {
    return await untilTakenOver(following, announcing.announce);
  } catch (error) {
    const { name } = following.generation;
    if (files.state() === "") files.discard();
    else if (endsCopy(error)) markCopy(files, null, name);
    // The next start continues from here.
    else if (copy.truncateWal() === null) markCopy(files, following.last, name);
    throw error;
  }
}
