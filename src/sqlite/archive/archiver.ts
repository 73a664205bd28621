/** Keeps the archive of an open database up to date. Runs in a thread of its own. */
import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import type { ArchiveLog, ArchiveState } from "../../archive.ts";
import { AppError, fail, messageOf } from "../../error.ts";
import type { Lease } from "../../lease.ts";
import type { ObjectStorage } from "../../object-storage.ts";
import type { FileDescriptors } from "../file-watch.ts";
import { writeBase } from "./base.ts";
import type { Base, SegmentId } from "./format.ts";
import { type Beginning, beginGeneration } from "./generation.ts";
import { createLogReader, type LogReader, logBytes } from "./log.ts";
import { lockLog } from "./log-lock.ts";
import { fileState, readMarker, writeMarker } from "./marker.ts";
import { deleteExpired } from "./retention.ts";
import { createSegmentWriter, type Retry, type SegmentWriter } from "./segments.ts";

/** Delays between attempts. */
const [MIN_RETRY_MS, MAX_RETRY_MS] = [200, 5_000];
/** Interval of the log lines about a storage that is away. */
const LOG_INTERVAL_MS = 60_000;
/** A base is due when this much was sent since the last one, or as much as its own size. */
const MIN_BASE_BYTES = 64 * 2 ** 20;
const BASE_INTERVAL_MS = 24 * 60 * 60 * 1000;
/** How long the end of a server waits for the storage. */
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
  /** While the storage is away, the log keeps what is missing up to this size, or half of the free space. */
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
   * Begins, as soon as no other server has the archive. Storage that is away does not prevent that.
   * @throws {AppError} operator if the archive cannot be used, e.g. because it is that of another database
   */
  start(): Promise<void>;
  /** Waits for the first base. @throws {AppError} operator if the storage does not respond in time */
  untilBase(): Promise<void>;
  /** Call it when the lease cannot be renewed. */
  reportProblem(error: AppError): void;
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

/** A lease, and the generation of its number. */
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
  /** `storedBytes` when the base was begun. */
  baseStart: number;
}

export function createArchiver(options: ArchiverOptions): Archiver {
  const { path, files, storage, createLease, intervalMs, keepMs, maxLogBytes, nowMs } = options;
  const { log, onConfirmed, onState, onLost } = options;
  const lock = lockLog(path);
  const closing = new AbortController();
  let term: Term | null = null;
  /** Of the last lease. */
  let released: Promise<void> = Promise.resolve();
  let isSuperseded = false;
  let isStarted = false;
  const firstProblem = Promise.withResolvers<void>();
  let session: Session | null = null;
  let closed = false;
  /** Whether the log was restarted before its end was read. */
  let isLost = false;
  let problem: string | null = null;
  let problemLoggedMs = Number.NEGATIVE_INFINITY;
  let lastCommit = 0;
  /** The last commit in `marks`, also if it was removed again. */
  let lastMarked = 0;
  /** Commits that the archive has when it has a segment. */
  let marks: { readonly commit: number; readonly number: number }[] = [];
  /** When the archive had everything. */
  let completeMs = nowMs();
  const storedWaiters = new Set<() => void>();

  function reportProblem(error: unknown): void {
    problem = messageOf(error);
    firstProblem.resolve();
    if (performance.now() - problemLoggedMs < LOG_INTERVAL_MS) return;
    problemLoggedMs = performance.now();
    log("warn", "archive not written", { reason: problem });
  }

  function reportSuccess(): void {
    if (problem === null) return;
    problem = null;
    problemLoggedMs = Number.NEGATIVE_INFINITY;
    log("info", "archive written again");
  }

  /** @param isOver whether the result is no longer needed */
  function retryUntil(isOver: () => boolean): Retry {
    return async (attempt) => {
      for (let delayMs = MIN_RETRY_MS; ; delayMs = Math.min(2 * delayMs, MAX_RETRY_MS)) {
        try {
          const result = await attempt();
          reportSuccess();
          return result;
        } catch (error) {
          if (!(error instanceof AppError)) throw error;
          reportProblem(error);
        }
        if (isOver()) fail("unavailable", "the archive was closed");
        await Bun.sleep(delayMs);
        if (isOver()) fail("unavailable", "the archive was closed");
      }
    };
  }

  function isUpToDate({ segments, reader }: Session): boolean {
    return segments.pendingBytes() === 0 && reader.unreadBytes() === 0;
  }

  function confirm(current: Session): void {
    const { segments } = current;
    // Nothing can be restored without a base.
    if (current.base === null) return;
    // What was stored until now is in the archive, whoever has it next: that server reads it after this lease.
    if (term?.lease.isHeld() !== true) return;
    let confirmed: number | null = null;
    while (marks[0] !== undefined && marks[0].number <= segments.stored()) {
      confirmed = marks.shift()?.commit ?? null;
    }
    if (confirmed !== null) onConfirmed(confirmed);
  }

  /** Sends what is new, and remembers which commits the archive has then. */
  function send(current: Session): void {
    const { segments, reader } = current;
    // Not before, so that all writes until then share a segment.
    if (segments.hasRoom()) segments.readAll();
    segments.send();
    if (session !== current) return;
    if (lastMarked < lastCommit && reader.unreadBytes() === 0) {
      lastMarked = lastCommit;
      marks.push({ commit: lastCommit, number: segments.lastRead() });
    }
    confirm(current);
    if (isUpToDate(current)) completeMs = nowMs();
  }

  function end(current: Session, reason: string): void {
    if (session !== current) return;
    current.segments.end();
    session = null;
    isLost = true;
    marks = [];
    lastMarked = 0;
    for (const wake of storedWaiters) wake();
    if (isSuperseded) return;
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
    isSuperseded = true;
    problem = reason;
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
        if (term === created && !closed) supersede(`${holder} has taken over the archive`);
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
    const base = await writeBase({
      storage,
      retry: retryUntil(() => closed || session !== current),
      generation: beginning.generation.number,
      segments,
      database: files.database,
      nowMs,
      untilStored: (number) => untilStored(current, number),
    });
    if (base === null) return;
    current.base = base;
    current.baseStart = baseStart;
    const bytes = base.chunks.reduce((sum, chunk) => sum + chunk.bytes, 0);
    const seconds = Number(((performance.now() - startedMs) / 1000).toFixed(3));
    log("info", "archive base written", { bytes, seconds });
    send(current);
    onState(state());
    await deleteExpired(storage, nowMs() - keepMs, nowMs());
  }

  let writingBase: Promise<void> | null = null;
  function isBaseDue({ base, baseStart, segments }: Session): boolean {
    if (base === null) return true;
    const since = segments.storedBytes() - baseStart;
    const bytes = base.chunks.reduce((sum, chunk) => sum + chunk.bytes, 0);
    if (since > Math.max(MIN_BASE_BYTES, bytes)) return true;
    return since > 0 && nowMs() - base.timeMs > BASE_INTERVAL_MS;
  }

  function writeBaseIfDue(current: Session): void {
    if (writingBase !== null || !isBaseDue(current)) return;
    writingBase = writeBaseOf(current)
      .catch((error) => {
        if (session === current && !closed) reportProblem(error);
      })
      .finally(() => {
        writingBase = null;
      });
  }

  async function begin(): Promise<void> {
    const { number, name } = await acquire();
    const beginning = await beginGeneration({ storage, path, files, isLost, number, name });
    if ("refused" in beginning) {
      if (!isStarted) fail("operator", beginning.refused);
      supersede(beginning.refused);
      return;
    }
    const { generation, position, continued, base } = beginning;
    const reader = createLogReader(files, position);
    const segments = createSegmentWriter({
      storage,
      retry: retryUntil(() => closed || session !== current),
      generation: generation.number,
      reader,
      continued,
      nowMs,
      onStored() {
        for (const wake of storedWaiters) wake();
        if (lastMarked < lastCommit) send(current);
        else confirm(current);
      },
      onGap: () => end(current, "the log was restarted by another program"),
      onError: reportUnexpected,
    });
    const current: Session = { beginning, reader, segments, base, baseStart: 0 };
    session = current;
    isLost = false;
    log("info", "archive opened", {
      storage: storage.url,
      generation: generation.number,
      continued: base !== null,
    });
    tick();
  }

  /** A bug, or a file of the database that cannot be read. */
  function reportUnexpected(error: unknown): void {
    reportProblem(error);
    if (session !== null) end(session, messageOf(error));
  }

  let beginning = false;
  /** Begins a generation as soon as the storage responds. */
  function run(): void {
    if (beginning || closed || isSuperseded) return;
    beginning = true;
    retryUntil(() => closed || isSuperseded)(begin)
      .catch((error) => {
        if (!closed) reportProblem(error);
      })
      .finally(() => {
        beginning = false;
      });
  }

  function state(): ArchiveState {
    const isComplete = session !== null && session.base !== null && isUpToDate(session);
    const bytesBehind =
      session === null ? 0 : session.segments.pendingBytes() + session.reader.unreadBytes();
    const secondsBehind = isComplete ? 0 : Math.max(0, (nowMs() - completeMs) / 1000);
    const lastBase = session?.base?.timeMs;
    const lastBaseS = lastBase === undefined ? null : lastBase / 1000;
    return { secondsBehind, bytesBehind, logBytes: logBytes(files), lastBaseS };
  }

  function tick(): void {
    try {
      if (session === null) run();
      else {
        send(session);
        // Sending may have ended it.
        if (session !== null) writeBaseIfDue(session);
      }
    } catch (error) {
      reportUnexpected(error);
    }
    onState(state());
  }

  function isLogTooLong(): boolean {
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
    return lock.complete(readRest, () => {
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
      beginning = true;
      const begun = begin().finally(() => {
        beginning = false;
      });
      begun.catch((error) => {
        if (isStarted && !closed) reportProblem(error);
      });
      try {
        await Promise.race([begun, firstProblem.promise]);
      } catch (error) {
        if (!(error instanceof AppError) || error.code !== "unavailable") throw error;
        reportProblem(error);
      }
      isStarted = true;
    },
    async untilBase() {
      for (let failingMs = 0; session === null || session.base === null; failingMs += POLL_MS) {
        if (problem === null) failingMs = 0;
        if (failingMs > START_TIMEOUT_MS) fail("operator", problem ?? "");
        await Bun.sleep(POLL_MS);
      }
    },
    reportProblem,
    committed(commit) {
      lastCommit = commit;
      try {
        if (session !== null) send(session);
      } catch (error) {
        reportUnexpected(error);
      }
    },
    checkpoint() {
      try {
        const current = session;
        const isRead = lock.checkpoint(() => current?.segments.readAll() ?? false);
        current?.segments.send();
        if (isRead || !isLogTooLong()) return;
        if (current !== null) end(current, "the storage was away for too long");
        isLost = true;
        lock.checkpoint(() => true);
      } catch (error) {
        reportUnexpected(error);
      }
    },
    async close() {
      clearInterval(timer);
      const deadlineMs = performance.now() + CLOSE_TIMEOUT_MS;
      let isComplete = false;
      while (!isComplete && performance.now() < deadlineMs) {
        if (session === null && (problem !== null || !beginning)) break;
        if (session !== null) {
          send(session);
          isComplete =
            session !== null && session.base !== null && isUpToDate(session) && complete(session);
        }
        if (!isComplete) await Bun.sleep(POLL_MS);
      }
      if (!isComplete && isStarted)
        log("warn", "archive not complete", { reason: problem ?? "a base is being written" });
      closed = true;
      closing.abort(new AppError("unavailable", "the archive was closed"));
      endTerm();
      await released;
      session?.segments.end();
      for (const wake of storedWaiters) wake();
      lock[Symbol.dispose]();
    },
  };
}
