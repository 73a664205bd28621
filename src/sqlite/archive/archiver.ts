/** Keeps the archive of an open database up to date, generation after generation. Runs in a thread of its own. */

import { AppError, fail, messageOf, systemCode } from "../../base/error.ts";
import type { ArchiveLog, ArchiveSettings, ArchiveState } from "../../domain/archive.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { freeBytesOf } from "../file/files.ts";
import { type Beginning, beginGeneration, type Refusal } from "./generation.ts";
import { createGenerationWriter, type GenerationWriter } from "./generation-writer.ts";
import { markComplete } from "./marker.ts";
import { createProblems } from "./problems.ts";
import { openProgress } from "./progress.ts";
import { type Clock, untilStill } from "./still.ts";
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

/** Cause of the error of a start whose database has another history than its archive. */
export const DIVERGED = "diverged";

interface ArchiverOptions extends Pick<ArchiveSettings, "intervalMs" | "keepMs"> {
  /** Path of a database that stays open. */
  readonly path: string;
  readonly files: FileDescriptors;
  readonly storage: ObjectStorage;
  /** A text that no other running process has: see identity.ts. */
  readonly identity: string;
  /** Names this server for operators. */
  readonly holder: string;
  /** While the storage is unreachable, the WAL keeps what is missing up to this size, or half of the free space. */
  readonly maxWalBytes: number;
  readonly nowMs: () => number;
  readonly clock: Clock;
  /** Ends a start that waits for another server. */
  readonly signal: AbortSignal;
  readonly log: ArchiveLog;
  /** Called when the archive has all commits up to this ticket. */
  readonly onConfirmed: (ticket: number) => void;
  readonly onState: (state: ArchiveState) => void;
  /** Called once, when another server has the archive. */
  readonly onLost: (reason: string) => void;
}

export interface Archiver {
  /**
   * Starts archiving, when no other server does. Returns early if the storage is unreachable.
   * @throws {AppError} operator if the archive cannot be used, e.g. because it is that of another database
   */
  start(): Promise<void>;
  /** Waits for the first base. @throws {AppError} operator if the storage does not respond in time */
  untilBase(): Promise<void>;
  /** Counts a commit, which has ended. */
  committed(ticket: number): void;
  /** Copies the WAL to the database, unless the WAL has to keep what the archive does not have. */
  checkpoint(): void;
  /** Brings the archive up to date if the storage responds in time. The database is closed afterwards. */
  close(): Promise<void>;
}

function requireAccepted(begun: Beginning | Refusal): Beginning {
  if (!("refused" in begun)) return begun;
  const { refused, isDiverged } = begun;
  throw new AppError("operator", refused, isDiverged ? { cause: DIVERGED } : {});
}

/** How far the archive is, and what is told about it. */
function createProgressReport({ nowMs, files, onConfirmed, onState }: ArchiverOptions) {
  let confirmedTicket = 0;
  /** The archive has all commits up to this time. */
  let completeUntilMs = nowMs();
  let bytesBehind = 0;
  return {
    confirm(ticket: number, untilMs: number): void {
      completeUntilMs = untilMs;
      if (ticket <= confirmedTicket) return;
      confirmedTicket = ticket;
      onConfirmed(ticket);
    },
    /** @param guard runs what may fail. If the WAL cannot be read, the bytes are those of the last time */
    report(writer: GenerationWriter | null, guard: (work: () => void) => void): void {
      const lastBase = writer?.bases.newest() ?? null;
      let isBehind = true;
      guard(() => {
        isBehind = writer?.isComplete() !== true;
        bytesBehind = writer?.segments.bytesBehind() ?? committedWalBytesOf(files);
      });
      onState({
        secondsBehind: isBehind ? Math.max(0, (nowMs() - completeUntilMs) / 1000) : 0,
        bytesBehind,
        lastBaseS: lastBase === null ? null : lastBase.timeMs / 1000,
      });
    },
  };
}

export function createArchiver(options: ArchiverOptions): Archiver {
  const { path, files, storage, intervalMs, maxWalBytes, nowMs, log, onLost } = options;
  const walLock = lockWal(path);
  const progress = openProgress(path);
  const report = createProgressReport(options);
  /** Aborted when the archive was closed, or is that of another server. */
  const ending = new AbortController();
  const isOver = () => ending.signal.aborted;
  const problems = createProblems(log);
  /** Writes the current generation; `null` until it has begun. */
  let writer: GenerationWriter | null = null;
  /** Whether the WAL was restarted before its end was read. */
  let hasGap = false;
  /** Why the archive is that of another server; `null` if it is not. */
  let lostReason: string | null = null;
  let isStarted = false;
  let isBeginning = false;
  let lastTicket = 0;
  let retryTimer: ReturnType<typeof setTimeout> | undefined;

  /** @returns why the archive cannot be kept up to date; `null` if it can */
  function problem(): string | null {
    return lostReason ?? problems.current();
  }

  /** Ends the current generation, without what the archive does not have. The next one begins with a base. */
  function abandon(reason: string): void {
    if (writer === null) return;
    writer.end();
    writer = null;
    hasGap = true;
    if (isOver()) return;
    log("warn", "archive needs a new base", { reason });
    beginSoon();
  }

  /** Another server has the archive. */
  function supersede(reason: string): void {
    if (isOver()) return;
    lostReason = reason;
    ending.abort(new AppError("operator", reason));
    log("error", "archive lost", { reason });
    abandon(reason);
    onLost(reason);
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

  async function waitForOther(
    next: Parameters<typeof untilStill>[1],
    holder: string,
  ): Promise<void> {
    log("info", "waiting for the archive", { holder });
    const signal = AbortSignal.any([ending.signal, options.signal]);
    await untilStill(storage, next, options.clock, signal);
  }

  async function begin(): Promise<void> {
    const begun = await beginGeneration({
      ...options,
      progress,
      hasGap,
      untilStill: waitForOther,
    });
    if ("refused" in begun && isStarted) return supersede(begun.refused);
    const beginning = requireAccepted(begun);
    const { damage: reason, generation } = beginning;
    if (reason !== null) log("warn", "archive needs a new base", { reason });
    if (isOver()) return;
    const begunWriter = await createGenerationWriter({
      ...options,
      progress,
      problems,
      beginning,
      onLog: log,
      lastTicket: () => lastTicket,
      onConfirmed: report.confirm,
      onSuperseded: (holder) => supersede(`${holder} has taken over the archive`),
      onGap: () => abandon("the WAL was restarted by another program"),
      onError: handleError,
      onBase: tick,
    });
    if (isOver()) return begunWriter.end();
    writer = begunWriter;
    hasGap = false;
    problems.clearRequired();
    const continued = beginning.newest !== null;
    log("info", "archive opened", {
      storage: storage.url,
      generation: generation.number,
      continued,
    });
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

  function tick(): void {
    guard(() => {
      if (writer === null) beginSoon();
      writer?.tick();
      problems.clear("reading");
    });
    report.report(writer, guard);
  }

  /** Copies all of the WAL to the database, and notes that the archive has it. @returns whether it has */
  function complete(current: GenerationWriter): boolean {
    const readRest = () => current.segments.readAll() && current.isComplete();
    return walLock.complete(readRest, () => markComplete(path, current.segments.last()));
  }

  /** Sends the rest, until the archive has all of the database. @returns whether it has, and whether that was noted */
  async function finish(): Promise<{ hasAll: boolean; isNoted: boolean }> {
    let deadlineMs = performance.now() + CLOSE_TIMEOUT_MS;
    let hasAll = false;
    let isNoted = false;
    while (!isNoted && performance.now() < deadlineMs) {
      if (writer === null && (problem() !== null || !isBeginning)) break;
      guard(() => {
        writer?.segments.advance();
        if (writer?.isComplete() !== true) return;
        if (!hasAll) deadlineMs = Math.min(deadlineMs, performance.now() + OTHERS_TIMEOUT_MS);
        hasAll = true;
        isNoted = complete(writer);
      });
      if (!isNoted) await Bun.sleep(POLL_MS);
    }
    return { hasAll, isNoted };
  }

  /** Says that this server writes nothing more, so that the next start need not wait. */
  async function closeLog({ log: own }: GenerationWriter): Promise<void> {
    try {
      const timeout = Bun.sleep(CLOSE_TIMEOUT_MS / 2);
      await Promise.race([own.close(nowMs()), timeout]);
    } catch (error) {
      log("warn", "archive not closed", { reason: messageOf(error) });
    }
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
      for (let failingMs = 0; (writer?.bases.newest() ?? null) === null; failingMs += POLL_MS) {
        options.signal.throwIfAborted();
        const reason = problem();
        if (reason === null) failingMs = 0;
        else if (failingMs > START_TIMEOUT_MS) fail("operator", reason);
        await Bun.sleep(POLL_MS);
      }
    },
    committed(ticket) {
      lastTicket = ticket;
      guard(() => writer?.segments.advance());
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
      const { hasAll, isNoted } = await finish();
      if (!isNoted && hasAll) log("warn", "archive needs attention", { reason: IN_USE });
      else if (!isNoted && isStarted && lostReason === null)
        log("warn", "archive not complete", { reason: problem() ?? "a base is being written" });
      const last = writer;
      if (last !== null && isNoted) await closeLog(last);
      ending.abort(new AppError("unavailable", "the archive was closed"));
      clearTimeout(retryTimer);
      last?.end();
      progress[Symbol.dispose]();
      walLock[Symbol.dispose]();
    },
  };
}
