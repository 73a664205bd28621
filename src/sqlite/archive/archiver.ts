/** Keeps the archive of an open database up to date, generation after generation. Runs in a thread of its own. */

import { AppError, fail, messageOf, systemCode } from "../../base/error.ts";
import type { ArchiveLog, ArchiveSettings, ArchiveState } from "../../domain/archive.ts";
import type { Lease } from "../../domain/lease.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { freeBytesOf } from "../file/files.ts";
import { type Bases, createBases } from "./bases.ts";
import type { Base } from "./format.ts";
import { beginGeneration, refusalOf } from "./generation.ts";
import { markComplete, markReplaced } from "./marker.ts";
import { createProblems } from "./problems.ts";
import { openProgress } from "./progress.ts";
import { createRetention } from "./retention.ts";
import { createSegmentWriter, type SegmentWriter } from "./segments.ts";
import { lockWal } from "./wal-lock.ts";
import { committedWalBytesOf } from "./wal-reader.ts";

/** How long a stopping server waits for the storage. */
const CLOSE_TIMEOUT_MS = 5_000;
/** How long the start of a server that needs the storage waits for it. */
const START_TIMEOUT_MS = 10_000;
/** How long it waits for other processes, so that the next start can prove that it continues the archive. */
const OTHERS_TIMEOUT_MS = 500;
const POLL_MS = 20;
/** After this part of the interval, what is new is sent. The rest is for the upload. */
const SENDING_SHARE = 0.75;
/**
 * Delay between a checkpoint and sending what is new. A WAL that was restarted meanwhile can be continued after a crash
 * only if the archive has a part of it.
 */
const AFTER_CHECKPOINT_MS = 100;

/** The archive is complete, but only the WAL says so, which the last process that closes the database deletes. */
const IN_USE =
  "another process uses the database: if that ends before the next start, all of it is copied again";

interface ArchiverOptions extends Pick<ArchiveSettings, "intervalMs" | "keepMs"> {
  /** Path of a database that stays open. */
  readonly path: string;
  readonly files: FileDescriptors;
  readonly storage: ObjectStorage;
  /** @returns a lease on the archive that nothing else uses */
  readonly newLease: () => Lease;
  /** While the storage is unreachable, the WAL keeps what is missing up to this size, or half of the free space. */
  readonly maxWalBytes: number;
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
  /** Copies the WAL to the database, unless the WAL has to keep what the archive does not have. */
  checkpoint(): void;
  /** Brings the archive up to date if the storage responds in time. The database is closed afterwards. */
  close(): Promise<void>;
}

export function createArchiver(options: ArchiverOptions): Archiver {
  const { path, files, storage, newLease, intervalMs, keepMs, maxWalBytes, nowMs } = options;
  const { log, onConfirmed, onState, onLost } = options;
  const walLock = lockWal(path);
  const progress = openProgress(path);
  /** Aborted when the archive was closed, or is that of another server. */
  const ending = new AbortController();
  const isOver = () => ending.signal.aborted;
  const problems = createProblems(log);
  /** That of the current generation, or of the attempt to begin one. */
  let lease: Lease | null = null;
  /** Resolves when the last lease is released. */
  let released: Promise<void> = Promise.resolve();
  const deleteIfDue = createRetention({ storage, keepMs, nowMs, problems, isOver });
  /** Writes the current generation; `null` until it has begun. */
  let writer: { readonly segments: SegmentWriter; readonly bases: Bases } | null = null;
  /** Whether the WAL was restarted before its end was read. */
  let hasGap = false;
  /** Why the archive is that of another server; `null` if it is not. */
  let lostReason: string | null = null;
  let isStarted = false;
  let isBeginning = false;
  let retryTimer: ReturnType<typeof setTimeout> | undefined;
  /** The last commit that was counted, and the last one that the archive has. */
  let lastCommit = 0;
  let confirmedCommit = 0;
  /** The archive has all commits up to this time. */
  let completeUntilMs = nowMs();
  let bytesBehind = 0;

  /** @returns why the archive cannot be kept up to date; `null` if it can */
  function problem(): string | null {
    return lostReason ?? problems.current();
  }

  const isHeld = () => lease?.isHeld() === true;

  function releaseLease(): Promise<void> {
    if (lease !== null) released = lease.release();
    lease = null;
    return released;
  }

  /** Ends the current generation, without what the archive does not have. The next one begins with a base. */
  function abandon(reason: string): void {
    if (writer === null) return;
    writer.segments.end();
    writer = null;
    hasGap = true;
    if (isOver()) return;
    log("warn", "archive needs a new base", { reason });
    void releaseLease();
    beginSoon();
  }

  /** Another server has the archive. */
  function supersede(reason: string): void {
    lostReason = reason;
    ending.abort(new AppError("operator", reason));
    log("error", "archive lost", { reason });
    onLost();
    abandon(reason);
  }

  /** A read that fails is repeated, and nothing is lost meanwhile. Anything else is a bug. */
  function handleError(error: unknown): void {
    const isBeingWritten = error instanceof AppError && error.code === "unavailable";
    if (!isBeingWritten && !/^E[A-Z]/.test(systemCode(error))) {
      problems.report("segments", error);
      abandon(messageOf(error));
      return;
    }
    problems.report("reading", error);
    clearTimeout(retryTimer);
    if (!isOver()) retryTimer = setTimeout(tick, POLL_MS);
  }

  /** Everything that a timer or a message begins runs in it: an error would end the thread. */
  function guard(work: () => void): void {
    try {
      work();
    } catch (error) {
      handleError(error);
    }
  }

  function confirm(commit: number, untilMs: number): void {
    completeUntilMs = untilMs;
    if (commit <= confirmedCommit) return;
    confirmedCommit = commit;
    onConfirmed(commit);
  }

  function refuse(reason: string): void {
    if (!isStarted) fail("operator", reason);
    supersede(reason);
  }

  async function begin(): Promise<void> {
    // First, because the lease may have to be waited for.
    const refused = await refusalOf(storage, path);
    if (refused !== null) return refuse(refused);
    await releaseLease();
    const next = newLease();
    lease = next;
    void next.whenLost.then((holder) => {
      if (lease !== next) return;
      const what =
        holder === null ? "the object `lease` was deleted" : `${holder} has taken over the archive`;
      supersede(what);
    });
    const number = await next.acquire(ending.signal);
    const options = { storage, path, files, progress, hasGap, number, name: next.id };
    const beginning = await beginGeneration(options);
    if ("refused" in beginning) return refuse(beginning.refused);
    const { damage: reason } = beginning;
    if (reason !== null) log("warn", "archive needs a new base", { reason });
    if (isOver()) return;
    const shared = { storage, files, progress, problems, beginning, nowMs };
    const segments = createSegmentWriter({
      ...shared,
      lastCommit: () => lastCommit,
      // Nothing can be restored without a base. If the lease is held, what was stored until now is in the archive, whoever
      // has it next: that server reads it after this lease.
      canConfirm: () => bases.newest() !== null && isHeld(),
      onConfirmed: confirm,
      onGap: () => abandon("the WAL was restarted by another program"),
      onError: handleError,
    });
    const onWritten = () => {
      guard(() => markReplaced(path, false));
      tick();
    };
    const bases = createBases({ ...shared, segments, log, onWritten });
    writer = { segments, bases };
    hasGap = false;
    problems.clearRequired();
    const continued = beginning.newest !== null;
    log("info", "archive opened", { storage: storage.url, generation: number, continued });
    tick();
  }

  /** @param work begins a generation. Only one is begun at a time */
  function open(work: () => Promise<void>): Promise<void> {
    isBeginning = true;
    const begun = work().finally(() => {
      isBeginning = false;
    });
    begun.catch((error) => {
      if (isStarted && !isOver()) problems.report("opening", error);
    });
    return begun;
  }

  /** Begins a generation as soon as the storage responds. */
  function beginSoon(): void {
    if (isBeginning || isOver()) return;
    void open(() => problems.retry("opening", isOver, begin));
  }

  function newestBase(): Base | null {
    return writer?.bases.newest() ?? null;
  }

  /** Whether the archive can restore all commits. */
  function isComplete(): boolean {
    return newestBase() !== null && writer?.segments.bytesBehind() === 0;
  }

  /** If the WAL cannot be read, the bytes are those of the last time. */
  function reportState(): void {
    const lastBase = newestBase();
    let isBehind = true;
    guard(() => {
      isBehind = !isComplete();
      bytesBehind = writer?.segments.bytesBehind() ?? committedWalBytesOf(files);
    });
    onState({
      secondsBehind: isBehind ? Math.max(0, (nowMs() - completeUntilMs) / 1000) : 0,
      bytesBehind,
      lastBaseS: lastBase === null ? null : lastBase.timeMs / 1000,
    });
  }

  function tick(): void {
    guard(() => {
      if (writer === null) beginSoon();
      writer?.segments.send();
      writer?.bases.writeIfDue();
      if (writer !== null && isHeld()) deleteIfDue();
      problems.clear("reading");
    });
    reportState();
  }

  /** Copies all of the WAL to the database, and notes that the archive has it. @returns whether it has */
  function complete(segments: SegmentWriter): boolean {
    const readRest = () => segments.readAll() && isComplete();
    return walLock.complete(readRest, () => markComplete(path, segments.last()));
  }

  const timer = setInterval(tick, SENDING_SHARE * intervalMs);
  let checkpointTimer: ReturnType<typeof setTimeout> | undefined;
  return {
    async start() {
      try {
        await Promise.race([open(begin), problems.first]);
      } catch (error) {
        if (!(error instanceof AppError) || error.code !== "unavailable") throw error;
        problems.report("opening", error);
      }
      isStarted = true;
    },
    async untilBase() {
      for (let failingMs = 0; newestBase() === null; failingMs += POLL_MS) {
        const reason = problem();
        if (reason === null) failingMs = 0;
        else if (failingMs > START_TIMEOUT_MS) fail("operator", reason);
        await Bun.sleep(POLL_MS);
      }
    },
    reportLease(error) {
      if (error === null) problems.clear("lease");
      else problems.report(writer === null ? "opening" : "lease", error);
    },
    committed(commit) {
      lastCommit = commit;
      guard(() => writer?.segments.send());
    },
    checkpoint() {
      guard(() => {
        if (walLock.checkpoint(() => writer?.segments.readAll() ?? false)) {
          clearTimeout(checkpointTimer);
          checkpointTimer = setTimeout(tick, AFTER_CHECKPOINT_MS);
          return;
        }
        // A WAL that is as large as what is free has taken half of the space.
        const limitBytes = Math.min(maxWalBytes, freeBytesOf(path) ?? maxWalBytes);
        if (committedWalBytesOf(files) <= limitBytes) return;
        abandon("the storage was unreachable for too long");
        hasGap = true;
        walLock.checkpoint(() => true);
      });
    },
    async close() {
      clearInterval(timer);
      clearTimeout(checkpointTimer);
      let deadlineMs = performance.now() + CLOSE_TIMEOUT_MS;
      let isClosed = false;
      let hasAll = false;
      while (!isClosed && performance.now() < deadlineMs) {
        if (writer === null && (problem() !== null || !isBeginning)) break;
        guard(() => {
          writer?.segments.send();
          if (writer === null || !isComplete()) return;
          if (!hasAll) deadlineMs = Math.min(deadlineMs, performance.now() + OTHERS_TIMEOUT_MS);
          hasAll = true;
          isClosed = complete(writer.segments);
        });
        if (!isClosed) await Bun.sleep(POLL_MS);
      }
      if (!isClosed && hasAll) log("warn", "archive needs attention", { reason: IN_USE });
      else if (!isClosed && isStarted)
        log("warn", "archive not complete", { reason: problem() ?? "a base is being written" });
      ending.abort(new AppError("unavailable", "the archive was closed"));
      clearTimeout(retryTimer);
      writer?.segments.end();
      await releaseLease();
      progress[Symbol.dispose]();
      walLock[Symbol.dispose]();
    },
  };
}
