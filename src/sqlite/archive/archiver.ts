/** Keeps the archive of an open database up to date. Runs in a thread of its own. */
import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import type { ArchiveLog, ArchiveState } from "../../archive.ts";
import { AppError, fail, messageOf } from "../../error.ts";
import type { Lease } from "../../lease.ts";
import type { ObjectStorage } from "../../object-storage.ts";
import type { FileDescriptors } from "../file-watch.ts";
import { writeBase } from "./base.ts";
import { trackCommits } from "./commits.ts";
import type { Base, SegmentId } from "./format.ts";
import { type Beginning, beginGeneration } from "./generation.ts";
import { createLogReader, type LogReader, logBytes } from "./log.ts";
import { lockLog } from "./log-lock.ts";
import { fileState, readMarker, writeMarker } from "./marker.ts";
import { type Activity, createProblems, REQUIRED_ACTIVITIES } from "./problems.ts";
import { deleteExpired } from "./retention.ts";
import { createSegmentWriter, type Retry, type SegmentWriter } from "./segments.ts";
import { storedBytesOf, storedBytesSince } from "./sizes.ts";

/** Delays between attempts. */
const [MIN_RETRY_MS, MAX_RETRY_MS] = [200, 5_000];
/**
 * A base is due when more than this, and more than its own size, was sent since the last one. Both are sizes of
 * compressed objects.
 */
const MIN_BASE_BYTES = 64 * 2 ** 20;
const BASE_INTERVAL_MS = 24 * 60 * 60 * 1000;
/** Interval at which expired objects are deleted. */
const DELETION_INTERVAL_MS = 60 * 60 * 1000;
/** How long a stopping server waits for the storage. */
const CLOSE_TIMEOUT_MS = 5_000;
/** How long the start of a server that needs the storage waits for it. */
const START_TIMEOUT_MS = 10_000;
const POLL_MS = 20;

export interface ArchiverOptions {
  /** Path of a database that stays open. */
  readonly path: string;
  readonly files: FileDescriptors;
  readonly storage: ObjectStorage;
  /** @returns a lease on the archive that nothing else uses */
  readonly createLease: () => AcquiredLease | { readonly lease: Lease; readonly number: null };
  readonly intervalMs: number;
  /** How far back the archive can restore. */
  readonly keepMs: number;
  /** While the storage is unreachable, the log keeps what is missing up to this size, or half of the free space. */
  readonly maxLogBytes: number;
  readonly nowMs: () => number;
  readonly log: ArchiveLog;
  /** Called when the archive has all commits that were counted up to this one. */
  readonly onConfirmed: (commit: number) => void;
  readonly onState: (state: ArchiveState) => void;
  /** Called once, when another server has the archive. */
  readonly onLost: () => void;
}

export interface Archiver {
  /**
   * Starts archiving once this process holds the lease. Returns early if the storage is unreachable.
   * @throws {AppError} operator if the archive cannot be used, e.g. because it is that of another database
   */
  start(): Promise<void>;
  /** Waits for the first base. @throws {AppError} operator if the storage does not respond in time */
  untilBase(): Promise<void>;
  /** @param error why the lease could not be acquired, renewed or released; `null` when that succeeds again */
  reportLease(error: AppError | null): void;
  /** Counts a commit, which has ended. */
  committed(commit: number): void;
  /** Copies the log to the database, unless the log has to keep what the archive does not have. */
  checkpoint(): void;
  /** Brings the archive up to date if the storage responds in time. The database is closed afterwards. */
  close(): Promise<void>;
}

export interface AcquiredLease {
  readonly lease: Lease;
  readonly number: number;
}

/** A lease and the name of the generation that is written under it. */
interface Term {
  readonly lease: Lease;
  readonly name: string;
  /** `null` until the lease is acquired. */
  number: number | null;
}

/** A generation that is being written. */
interface Session {
  readonly beginning: Beginning;
  readonly reader: LogReader;
  readonly segments: SegmentWriter;
  /** The newest base. */
  base: Base | null;
  /** Size of its compressed chunks. */
  baseBytes: number;
  /** `storedBytes` when the base was begun; negative by what earlier generations have sent since. */
  baseStart: number;
}

export function createArchiver(options: ArchiverOptions): Archiver {
  const { path, files, storage, createLease, intervalMs, keepMs, maxLogBytes, nowMs } = options;
  const { log, onConfirmed, onState, onLost } = options;
  const walLock = lockLog(path);
  const closing = new AbortController();
  let term: Term | null = null;
  /** Of the last lease. */
  let released: Promise<void> = Promise.resolve();
  /** Why the archive is that of another server; `null` if it is not. */
  let lostReason: string | null = null;
  let isStarted = false;
  const firstProblem = Promise.withResolvers<void>();
  let session: Session | null = null;
  let closed = false;
  /** Whether the write-ahead log was restarted before its end was read. */
  let hasGap = false;
  const problems = createProblems(log);
  const commits = trackCommits();
  /** When the archive had everything. */
  let completeMs = nowMs();
  const storedWaiters = new Set<() => void>();

  function report(activity: Activity, error: unknown): void {
    problems.report(activity, error);
    firstProblem.resolve();
  }

  /** @returns why the archive cannot be kept up to date; `null` if it can */
  function problem(): string | null {
    return lostReason ?? problems.current();
  }

  /** @param isOver whether the result is no longer needed */
  function retryUntil(activity: Activity, isOver: () => boolean): Retry {
    return async (attempt) => {
      for (let delayMs = MIN_RETRY_MS; ; delayMs = Math.min(2 * delayMs, MAX_RETRY_MS)) {
        try {
          const result = await attempt();
          problems.clear(activity);
          return result;
        } catch (error) {
          if (!(error instanceof AppError)) throw error;
          report(activity, error);
        }
        if (isOver()) fail("unavailable", "the archive was closed");
        await Bun.sleep(delayMs);
        if (isOver()) fail("unavailable", "the archive was closed");
      }
    };
  }

  /** Whether the archive can restore all commits. */
  function isComplete({ base, segments, reader }: Session): boolean {
    return base !== null && segments.pendingBytes() === 0 && reader.unreadBytes() === 0;
  }

  function confirm(current: Session): void {
    const { segments } = current;
    // Nothing can be restored without a base.
    if (current.base === null) return;
    // What was stored until now is in the archive, whoever has it next: that server reads it after this lease.
    if (term?.lease.isHeld() !== true) return;
    const confirmed = commits.takeStored(segments.stored());
    if (confirmed !== null) onConfirmed(confirmed);
  }

  /** Sends what is new, and remembers which commits the archive has then. */
  function send(current: Session): void {
    const { segments, reader } = current;
    // Not before, so that all writes until then share a segment.
    if (segments.hasRoom()) segments.readAll();
    segments.send();
    if (session !== current) return;
    if (commits.isUnread() && reader.unreadBytes() === 0) commits.read(segments.lastRead());
    confirm(current);
    if (isComplete(current)) completeMs = nowMs();
  }

  function end(current: Session, reason: string): void {
    if (session !== current) return;
    current.segments.end();
    session = null;
    hasGap = true;
    commits.reset();
    for (const wake of storedWaiters) wake();
    if (lostReason !== null) return;
    log("warn", "archive needs a new base", { reason });
    endTerm();
    run();
  }

  function endTerm(): void {
    if (term !== null) released = term.lease.release();
    term = null;
  }

  /** Another server has the archive. */
  function supersede(reason: string): void {
    lostReason = reason;
    log("error", "archive lost", { reason });
    onLost();
    if (session !== null) end(session, reason);
  }

  async function acquire(): Promise<Term & { readonly number: number }> {
    await released;
    if (term === null) {
      const created: Term = { ...createLease(), name: crypto.randomUUID() };
      term = created;
      created.lease.whenLost.then((holder) => {
        if (term !== created || closed) return;
        supersede(
          holder === null
            ? "the object `lease` was deleted"
            : `${holder} has taken over the archive`,
        );
      }, reportUnexpected);
    }
    const current = term;
    const number = current.number ?? (await current.lease.acquire(closing.signal));
    return Object.assign(current, { number });
  }

  async function untilStored(current: Session, number: number): Promise<void> {
    while (session === current && !closed && current.segments.stored() < number) {
      const { promise, resolve } = Promise.withResolvers<void>();
      storedWaiters.add(resolve);
      await promise;
      storedWaiters.delete(resolve);
    }
    if (session !== current || closed) fail("unavailable", "the archive was closed");
  }

  async function writeBaseOf(current: Session): Promise<void> {
    const startedMs = performance.now();
    const { segments, beginning } = current;
    const baseStart = segments.storedBytes();
    let baseBytes = 0;
    const base = await writeBase({
      storage: {
        async put(key, body) {
          await storage.put(key, body);
          baseBytes += body.length;
        },
      },
      retry: retryUntil("base", () => closed || session !== current),
      generation: beginning.generation.number,
      segments,
      database: files.database,
      nowMs,
      untilStored: (number) => untilStored(current, number),
    });
    if (base === null) return;
    current.base = base;
    current.baseBytes = baseBytes;
    current.baseStart = baseStart;
    const bytes = base.chunks.reduce((sum, chunk) => sum + chunk.bytes, 0);
    const seconds = Number(((performance.now() - startedMs) / 1000).toFixed(3));
    log("info", "archive base written", { bytes, seconds });
    send(current);
    onState(state());
    deletedMs = Number.NEGATIVE_INFINITY;
  }

  let writingBase: Promise<void> | null = null;
  function isBaseDue({ base, baseBytes, baseStart, segments }: Session): boolean {
    if (base === null) return true;
    const since = segments.storedBytes() - baseStart;
    if (since > Math.max(MIN_BASE_BYTES, baseBytes)) return true;
    return since > 0 && nowMs() - base.timeMs > BASE_INTERVAL_MS;
  }

  function writeBaseIfDue(current: Session): void {
    if (writingBase !== null || !isBaseDue(current)) return;
    writingBase = writeBaseOf(current)
      .catch((error) => {
        if (session === current && !closed) report("base", error);
      })
      .finally(() => {
        writingBase = null;
      });
  }

  let deletedMs = Number.NEGATIVE_INFINITY;
  let isDeleting = false;
  function deleteIfDue(): void {
    // The chunks of a base that is being written look like those of one that was never completed.
    if (isDeleting || writingBase !== null || term?.lease.isHeld() !== true) return;
    if (nowMs() - deletedMs < DELETION_INTERVAL_MS) return;
    deletedMs = nowMs();
    isDeleting = true;
    deleteExpired(storage, nowMs() - keepMs, nowMs())
      .then(
        () => problems.clear("deletion"),
        (error) => {
          if (!closed) report("deletion", error);
        },
      )
      .finally(() => {
        isDeleting = false;
      });
  }

  async function begin(): Promise<void> {
    const { number, name } = await acquire();
    const beginning = await beginGeneration({ storage, path, files, isLost: hasGap, number, name });
    if ("refused" in beginning) {
      if (!isStarted) fail("operator", beginning.refused);
      supersede(beginning.refused);
      return;
    }
    const { generation, position, continued, base } = beginning;
    const baseBytes = base === null ? 0 : await storedBytesOf(storage, base);
    const sent = base === null ? 0 : await storedBytesSince(storage, base, generation.number);
    if (closed || lostReason !== null) return;
    const reader = createLogReader(files, position);
    const segments = createSegmentWriter({
      storage,
      retry: retryUntil("segments", () => closed || session !== current),
      generation: generation.number,
      reader,
      continued,
      nowMs,
      onStored() {
        for (const wake of storedWaiters) wake();
        if (commits.isUnread()) send(current);
        else confirm(current);
      },
      onGap: () => end(current, "the log was restarted by another program"),
      onError: reportUnexpected,
    });
    const current: Session = { beginning, reader, segments, base, baseBytes, baseStart: -sent };
    session = current;
    hasGap = false;
    // Also those of the session that has ended.
    for (const activity of REQUIRED_ACTIVITIES) problems.clear(activity);
    log("info", "archive opened", {
      storage: storage.url,
      generation: generation.number,
      continued: base !== null,
    });
    tick();
  }

  /** A bug, or a file of the database that cannot be read. */
  function reportUnexpected(error: unknown): void {
    report("segments", error);
    if (session !== null) end(session, messageOf(error));
  }

  let isBeginning = false;
  /** Begins a generation as soon as the storage responds. */
  function run(): void {
    if (isBeginning || closed || lostReason !== null) return;
    isBeginning = true;
    retryUntil(
      "opening",
      () => closed || lostReason !== null,
    )(begin)
      .catch((error) => {
        if (!closed) report("opening", error);
      })
      .finally(() => {
        isBeginning = false;
      });
  }

  function state(): ArchiveState {
    const walBytes = logBytes(files);
    const bytesBehind =
      session === null ? walBytes : session.segments.pendingBytes() + session.reader.unreadBytes();
    const secondsBehind =
      session !== null && isComplete(session) ? 0 : Math.max(0, (nowMs() - completeMs) / 1000);
    const lastBase = session?.base?.timeMs;
    const lastBaseS = lastBase === undefined ? null : lastBase / 1000;
    return { secondsBehind, bytesBehind, logBytes: walBytes, lastBaseS, problem: problem() };
  }

  function tick(): void {
    try {
      if (session === null) run();
      else {
        send(session);
        // Sending may have ended it.
        if (session !== null) writeBaseIfDue(session);
        if (session !== null) deleteIfDue();
      }
    } catch (error) {
      reportUnexpected(error);
    }
    onState(state());
  }

  function isWalTooLong(): boolean {
    const { bavail, bsize } = statfsSync(dirname(path));
    return logBytes(files) > Math.min(maxLogBytes, bavail * bsize);
  }

  /** The last segment that the archive has of this database. */
  function lastOf({ segments, beginning: { generation } }: Session): SegmentId {
    if (segments.stored() > 0) return { generation: generation.number, number: segments.stored() };
    return generation.parent ?? { generation: generation.number, number: 0 };
  }

  function complete(current: Session): boolean {
    const { segments } = current;
    const readRest = () => segments.readAll() && segments.pendingBytes() === 0;
    return walLock.complete(readRest, () => {
      const names = readMarker(path)?.names ?? [];
      writeMarker(path, {
        names,
        restored: null,
        complete: { ...lastOf(current), file: fileState(path) },
      });
    });
  }

  const timer = setInterval(tick, intervalMs);
  return {
    async start() {
      isBeginning = true;
      const begun = begin().finally(() => {
        isBeginning = false;
      });
      begun.catch((error) => {
        if (isStarted && !closed) report("opening", error);
      });
      try {
        await Promise.race([begun, firstProblem.promise]);
      } catch (error) {
        if (!(error instanceof AppError) || error.code !== "unavailable") throw error;
        report("opening", error);
      }
      isStarted = true;
    },
    async untilBase() {
      for (let failingMs = 0; session === null || session.base === null; failingMs += POLL_MS) {
        const reason = problem();
        if (reason === null) failingMs = 0;
        else if (failingMs > START_TIMEOUT_MS) fail("operator", reason);
        await Bun.sleep(POLL_MS);
      }
    },
    reportLease(error) {
      if (error === null) problems.clear("lease");
      else report(session === null ? "opening" : "lease", error);
    },
    committed(commit) {
      commits.committed(commit);
      try {
        if (session !== null) send(session);
      } catch (error) {
        reportUnexpected(error);
      }
    },
    checkpoint() {
      try {
        const current = session;
        const isRead = walLock.checkpoint(() => current?.segments.readAll() ?? false);
        current?.segments.send();
        if (isRead || !isWalTooLong()) return;
        if (current !== null) end(current, "the storage was unreachable for too long");
        hasGap = true;
        walLock.checkpoint(() => true);
      } catch (error) {
        reportUnexpected(error);
      }
    },
    async close() {
      clearInterval(timer);
      const deadlineMs = performance.now() + CLOSE_TIMEOUT_MS;
      let isClosed = false;
      while (!isClosed && performance.now() < deadlineMs) {
        if (session === null && (problem() !== null || !isBeginning)) break;
        if (session !== null) {
          send(session);
          isClosed = session !== null && isComplete(session) && complete(session);
        }
        if (!isClosed) await Bun.sleep(POLL_MS);
      }
      if (!isClosed && isStarted) {
        const reason = problem() ?? "a base is being written";
        log("warn", "archive not complete", { reason });
      }
      closed = true;
      closing.abort(new AppError("unavailable", "the archive was closed"));
      endTerm();
      await released;
      session?.segments.end();
      for (const wake of storedWaiters) wake();
      walLock[Symbol.dispose]();
    },
  };
}
