/** Keeps the archive of an open database up to date, generation after generation. Runs in a thread of its own. */

import { AppError, fail, messageOf, systemCode } from "../../base/error.ts";
import type { ArchiveLog, ArchiveSettings, ArchiveState } from "../../domain/archive.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { freeBytesOf } from "../file/files.ts";
import { type Beginning, beginGeneration, type Refusal } from "./generation.ts";
import { createGenerationWriter, type GenerationWriter } from "./generation-writer.ts";
import { markComplete } from "./marker.ts";
import { createProblems, type Problems } from "./problems.ts";
import { openProgress, type ProgressReader } from "./progress.ts";
import { type Clock, untilStill } from "./still.ts";
import { lockWal, type WalLock } from "./wal-lock.ts";
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
    update(writer: GenerationWriter | null, guard: (work: () => void) => void): void {
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

type Report = ReturnType<typeof createProgressReport>;

/** An archive that is being kept up to date. */
interface Archiving extends ArchiverOptions {
  readonly walLock: WalLock;
  readonly progress: ProgressReader;
  readonly problems: Problems;
  readonly report: Report;
  /** Aborted when the archive was closed, or is that of another server. */
  readonly ending: AbortController;
  /** Writes the current generation; `null` until it has begun. */
  writer: GenerationWriter | null;
  /** Whether the WAL was restarted before its end was read. */
  hasGap: boolean;
  /** Why the archive is that of another server; `null` if it is not. */
  lostReason: string | null;
  isStarted: boolean;
  isBeginning: boolean;
  lastTicket: number;
  retryTimer: ReturnType<typeof setTimeout> | undefined;
}

function isOver({ ending }: Archiving): boolean {
  return ending.signal.aborted;
}

/** @returns why the archive cannot be kept up to date; `null` if it can */
function problemOf({ lostReason, problems }: Archiving): string | null {
  return lostReason ?? problems.current();
}

/** Ends the current generation, without what the archive does not have. The next one begins with a base. */
function abandon(archive: Archiving, reason: string): void {
  if (archive.writer === null) return;
  archive.writer.end();
  archive.writer = null;
  archive.hasGap = true;
  if (isOver(archive)) return;
  archive.log("warn", "archive needs a new base", { reason });
  beginSoon(archive);
}

/** Another server has the archive. */
function supersede(archive: Archiving, reason: string): void {
  if (isOver(archive)) return;
  archive.lostReason = reason;
  archive.ending.abort(new AppError("operator", reason));
  archive.log("error", "archive lost", { reason });
  abandon(archive, reason);
  archive.onLost(reason);
}

/** A read that fails is repeated, and nothing is lost meanwhile. Anything else is a bug. */
function handleError(archive: Archiving, error: unknown): void {
  const isBeingWritten = error instanceof AppError && error.code === "unavailable";
  if (!isBeingWritten && !/^E[A-Z]/.test(systemCode(error))) {
    archive.problems.report("segments", error);
    abandon(archive, messageOf(error));
    return;
  }
  archive.problems.report("reading", error);
  clearTimeout(archive.retryTimer);
  if (!isOver(archive)) archive.retryTimer = setTimeout(() => tick(archive), POLL_MS);
}

/** Everything that a timer or a message begins runs in it: an error would end the thread. */
function guard(archive: Archiving, work: () => void): void {
  try {
    work();
  } catch (error) {
    handleError(archive, error);
  }
}

async function begin(archive: Archiving): Promise<void> {
  const { storage, log, clock, ending } = archive;
  const signal = AbortSignal.any([ending.signal, archive.signal]);
  const begun = await beginGeneration({
    ...archive,
    untilStill(next, holder) {
      log("info", "waiting for the archive", { holder });
      return untilStill(storage, next, clock, signal);
    },
  });
  if ("refused" in begun && archive.isStarted) return supersede(archive, begun.refused);
  const beginning = requireAccepted(begun);
  if (beginning.damage !== null)
    log("warn", "archive needs a new base", { reason: beginning.damage });
  if (isOver(archive)) return;
  const writer = await createGenerationWriter({
    ...archive,
    beginning,
    onLog: log,
    lastTicket: () => archive.lastTicket,
    onConfirmed: archive.report.confirm,
    onSuperseded: (holder) => supersede(archive, `${holder} has taken over the archive`),
    onGap: () => abandon(archive, "the WAL was restarted by another program"),
    onError: (error) => handleError(archive, error),
    onBase: () => tick(archive),
  });
  if (isOver(archive)) return writer.end();
  archive.writer = writer;
  archive.hasGap = false;
  archive.problems.clearRequired();
  const { number: generation, continues: continued } = beginning.generation;
  log("info", "archive opened", { storage: storage.url, generation, continued });
  tick(archive);
}

/** @param work begins a generation. Only one is begun at a time */
function open(archive: Archiving, work: () => Promise<void>): Promise<void> {
  archive.isBeginning = true;
  const begun = work().finally(() => {
    archive.isBeginning = false;
  });
  begun.catch((error) => {
    if (archive.isStarted && !isOver(archive)) archive.problems.report("opening", error);
  });
  return begun;
}

/** Begins a generation as soon as the storage responds. */
function beginSoon(archive: Archiving): void {
  if (archive.isBeginning || isOver(archive)) return;
  const { problems } = archive;
  const retry = () =>
    problems.retry(
      "opening",
      () => isOver(archive),
      () => begin(archive),
    );
  void open(archive, retry);
}

function tick(archive: Archiving): void {
  guard(archive, () => {
    if (archive.writer === null) beginSoon(archive);
    archive.writer?.tick();
    archive.problems.clear("reading");
  });
  archive.report.update(archive.writer, (work) => guard(archive, work));
}

async function start(archive: Archiving): Promise<void> {
  try {
    await Promise.race([open(archive, () => begin(archive)), archive.problems.first]);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "unavailable") throw error;
    archive.problems.report("opening", error);
  }
  archive.isStarted = true;
}

async function untilBase(archive: Archiving): Promise<void> {
  const lacksBase = () => (archive.writer?.bases.newest() ?? null) === null;
  for (let failingMs = 0; lacksBase(); failingMs += POLL_MS) {
    archive.signal.throwIfAborted();
    const reason = problemOf(archive);
    if (reason === null) failingMs = 0;
    else if (failingMs > START_TIMEOUT_MS) fail("operator", reason);
    await Bun.sleep(POLL_MS);
  }
}

/** @returns whether the WAL was copied to the database; if not, it has to keep what the archive does not have */
function checkpoint(archive: Archiving): boolean {
  const { walLock, path, files, maxWalBytes } = archive;
  if (walLock.checkpoint(() => archive.writer?.segments.readAll() ?? false)) return true;
  // A WAL that is as large as what is free has taken half of the space.
  const limitBytes = Math.min(maxWalBytes, freeBytesOf(path) ?? maxWalBytes);
  if (committedWalBytesOf(files) <= limitBytes) return false;
  abandon(archive, "the storage was unreachable for too long");
  archive.hasGap = true;
  walLock.checkpoint(() => true);
  return false;
}

/** Copies all of the WAL to the database, and notes that the archive has it. @returns whether it has */
function complete({ walLock, path }: Archiving, { segments, isComplete }: GenerationWriter) {
  const readRest = () => segments.readAll() && isComplete();
  return walLock.complete(readRest, () => markComplete(path, segments.last()));
}

/** Sends the rest, until the archive has all of the database. @returns whether it has, and whether that was noted */
async function finish(archive: Archiving): Promise<{ hasAll: boolean; isNoted: boolean }> {
  let deadlineMs = performance.now() + CLOSE_TIMEOUT_MS;
  let hasAll = false;
  let isNoted = false;
  while (!isNoted && performance.now() < deadlineMs) {
    const { writer, isBeginning } = archive;
    if (writer === null && (problemOf(archive) !== null || !isBeginning)) break;
    guard(archive, () => {
      writer?.segments.advance();
      if (writer?.isComplete() !== true) return;
      if (!hasAll) deadlineMs = Math.min(deadlineMs, performance.now() + OTHERS_TIMEOUT_MS);
      hasAll = true;
      isNoted = complete(archive, writer);
    });
    if (!isNoted) await Bun.sleep(POLL_MS);
  }
  return { hasAll, isNoted };
}

/** Says that this server writes nothing more, so that the next start need not wait. */
async function closeLog({ log, nowMs }: Archiving, writer: GenerationWriter): Promise<void> {
  try {
    await Promise.race([writer.log.close(nowMs()), Bun.sleep(CLOSE_TIMEOUT_MS / 2)]);
  } catch (error) {
    log("warn", "archive not closed", { reason: messageOf(error) });
  }
}

async function close(archive: Archiving): Promise<void> {
  const { log, isStarted } = archive;
  const { hasAll, isNoted } = await finish(archive);
  const { writer, lostReason } = archive;
  if (!isNoted && hasAll) log("warn", "archive needs attention", { reason: IN_USE });
  else if (!isNoted && isStarted && lostReason === null)
    log("warn", "archive not complete", {
      reason: problemOf(archive) ?? "a base is being written",
    });
  if (writer !== null && isNoted) await closeLog(archive, writer);
  archive.ending.abort(new AppError("unavailable", "the archive was closed"));
  clearTimeout(archive.retryTimer);
  archive.writer?.end();
  archive.progress[Symbol.dispose]();
  archive.walLock[Symbol.dispose]();
}

export function createArchiver(options: ArchiverOptions): Archiver {
  const archive: Archiving = {
    ...options,
    walLock: lockWal(options.path),
    progress: openProgress(options.path),
    problems: createProblems(options.log),
    report: createProgressReport(options),
    ending: new AbortController(),
    writer: null,
    hasGap: false,
    lostReason: null,
    isStarted: false,
    isBeginning: false,
    lastTicket: 0,
    retryTimer: undefined,
  };
  const timer = setInterval(() => tick(archive), SENDING_SHARE * options.intervalMs);
  let checkpointTimer: ReturnType<typeof setTimeout> | undefined;
  return {
    start: () => start(archive),
    untilBase: () => untilBase(archive),
    committed(ticket) {
      archive.lastTicket = ticket;
      guard(archive, () => archive.writer?.segments.advance());
    },
    checkpoint() {
      guard(archive, () => {
        if (!checkpoint(archive)) return;
        clearTimeout(checkpointTimer);
        checkpointTimer = setTimeout(() => tick(archive), AFTER_CHECKPOINT_MS);
      });
    },
    async close() {
      clearInterval(timer);
      clearTimeout(checkpointTimer);
      await close(archive);
    },
  };
}
