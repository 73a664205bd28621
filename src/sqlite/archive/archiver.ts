/** Keeps the archive of an open database up to date, generation after generation. Runs in a thread of its own. */

import { AppError, fail, messageOf, systemCode } from "../../base/error.ts";
import { createSettledClock } from "../../base/settled-clock.ts";
import { freeBytesOf } from "../file/files.ts";
import { type Archiving, isOver, problemOf } from "./archiver-state.ts";
import { writeBaseIfDue } from "./bases.ts";
import { close, noteEnd } from "./closing.ts";
import { type ArchiverOptions, isOfArchive } from "./context.ts";
import { beginGeneration } from "./generation.ts";
import { createGenerationWriter, endGeneration } from "./generation-writer.ts";
import { noteArchived } from "./marker.ts";
import { createProblems } from "./problems.ts";
import { openProgress } from "./progress.ts";
import { deleteIfDue } from "./retention.ts";
import { advance, bytesBehind, isComplete, readAll } from "./segments.ts";
import { lockWal } from "./wal-lock.ts";
import { committedWalBytesOf } from "./wal-reader.ts";

/** How long the start of a server that needs the storage waits for it. */
const START_TIMEOUT_MS = 10_000;
const POLL_MS = 20;
/** An unexpected error that ended a generation less than this ago can end each one: the next base waits as long. */
const PAUSE_MS = 60_000;
/** After this part of the interval, what is new is sent. The rest is for the upload. */
const SENDING_SHARE = 0.75;
/**
 * Delay between a checkpoint and sending what is new. A WAL that was restarted meanwhile can be continued after a crash
 * only if the archive has a part of it.
 */
const AFTER_CHECKPOINT_MS = 100;

export type Archiver = ReturnType<typeof createArchiver>;

/** Ends the current generation, without what the archive does not have. The next one begins with a base. */
function abandon(archive: Archiving, reason: string): void {
  if (archive.writer === null) return;
  endGeneration(archive.writer);
  archive.writer = null;
  archive.hasGap = true;
  if (isOver(archive)) return;
  archive.log("warn", "archive needs a new base", { reason });
  beginSoon(archive);
}

/** This server no longer writes to the archive, as a rule because another one does. */
function supersede(archive: Archiving, reason: string): void {
  if (isOver(archive)) return;
  archive.ending.abort(new AppError("operator", reason));
  archive.log("error", "archive given up", { reason });
  const { writer } = archive;
  if (writer !== null) guard(archive, () => noteEnd(archive, writer));
  abandon(archive, reason);
  archive.onSuperseded(reason);
}

/**
 * A read that fails is repeated, and nothing is lost meanwhile. Everything else ends the generation: a restart of the WAL,
 * objects that the storage has lost, or a bug.
 */
function handleError(archive: Archiving, error: unknown): void {
  const isBeingWritten = error instanceof AppError && error.code === "unavailable";
  if (isBeingWritten || /^E[A-Z]/.test(systemCode(error))) {
    archive.problems.report("reading", error);
    return;
  }
  archive.problems.report("segments", error);
  const nowMs = archive.clock.monotonicMs();
  if (!(error instanceof AppError)) {
    if (nowMs - archive.failedMs < PAUSE_MS) archive.pausedUntilMs = nowMs + PAUSE_MS;
    archive.failedMs = nowMs;
  }
  abandon(archive, messageOf(error));
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
  const { storage, log, ending } = archive;
  const signal = AbortSignal.any([ending.signal, archive.signal]);
  const begun = await beginGeneration(archive, signal).catch((error) => {
    if (!archive.isStarted || !isOfArchive(error)) throw error;
    supersede(archive, error.message);
    return null;
  });
  if (begun === null) return;
  if (begun.damage !== null) log("warn", "archive needs a new base", { reason: begun.damage });
  if (isOver(archive)) return;
  const writer = await createGenerationWriter(archive, begun, {
    onStored(ticket, untilMs) {
      archive.completeUntilMs = untilMs;
      archive.onConfirmed(ticket);
    },
    onSuperseded: (holder) => supersede(archive, `${holder} has taken over the archive`),
    onError: (error) => handleError(archive, error),
    onHeld(untilMs) {
      archive.heldUntilMs = untilMs;
      reportState(archive);
    },
  });
  if (isOver(archive)) return endGeneration(writer);
  archive.writer = writer;
  archive.hasGap = false;
  archive.problems.clearRequired();
  const { number: generation, continues: continued } = begun.generation;
  log("info", "archive opened", { storage: storage.url, generation, continued });
  tick(archive);
}

/** @param work begins a generation. Only one is begun at a time */
function open(archive: Archiving, work: () => Promise<void>): Promise<void> {
  return archive.problems.run("opening", () => isOver(archive) || !archive.isStarted, work);
}

/** Begins a generation as soon as the storage responds. */
function beginSoon(archive: Archiving): void {
  const { problems } = archive;
  // `tick` calls it again.
  if (archive.clock.monotonicMs() < archive.pausedUntilMs) return;
  const attempt = () => begin(archive);
  void open(archive, () => problems.retry("opening", () => isOver(archive), attempt));
}

/** Reports how far the archive is. If the WAL cannot be read, the bytes are those of the last time. */
function reportState(archive: Archiving): void {
  if (isOver(archive)) return;
  const { path, writer, files, nowMs, clock, completeUntilMs, createdMs, onState } = archive;
  const base = writer?.newestBase ?? null;
  let isBehind = true;
  const lookedMs = nowMs();
  guard(archive, () => {
    isBehind = writer === null || !isComplete(writer);
    archive.bytesBehind = writer === null ? committedWalBytesOf(files) : bytesBehind(writer);
  });
  const monotonicMs = clock.monotonicMs();
  const behindMs = isBehind ? monotonicMs - (completeUntilMs ?? createdMs) : 0;
  if (completeUntilMs !== null) noteArchived(path, lookedMs - behindMs);
  onState({
    secondsBehind: behindMs / 1000,
    bytesBehind: archive.bytesBehind,
    lastBaseS: base === null ? null : base.timeMs / 1000,
    heldForMs: archive.heldUntilMs - monotonicMs,
  });
}

function tick(archive: Archiving): void {
  if (isOver(archive)) return;
  const { writer, problems } = archive;
  if (writer === null) beginSoon(archive);
  guard(archive, () => {
    if (writer !== null) {
      advance(writer);
      writeBaseIfDue(writer);
      deleteIfDue(writer);
    }
    problems.clear("reading");
  });
  reportState(archive);
}

/**
 * Starts archiving, when no other server does. Returns early if the storage is unreachable.
 * @throws {AppError} operator if the archive cannot be used, e.g. because it is that of another database
 */
async function start(archive: Archiving): Promise<void> {
  try {
    await Promise.race([open(archive, () => begin(archive)), archive.problems.first]);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "unavailable") throw error;
    archive.problems.report("opening", error);
  }
  archive.isStarted = true;
}

/** Waits for the first base. @throws {AppError} operator if the storage does not respond in time */
async function untilBaseWritten(archive: Archiving): Promise<void> {
  const lacksBase = () => (archive.writer?.newestBase ?? null) === null;
  for (let failingMs = 0; lacksBase(); failingMs += POLL_MS) {
    archive.signal.throwIfAborted();
    const reason = problemOf(archive);
    if (reason === null) failingMs = 0;
    else if (failingMs > START_TIMEOUT_MS) fail("operator", reason);
    await Bun.sleep(POLL_MS);
  }
}

/**
 * Copies the WAL to the database if the archive has all of it, or it has become too large.
 * @returns whether the archive has all of it
 */
function checkpoint(archive: Archiving): boolean {
  const { walLock, path, files, maxWalBytes } = archive;
  if (walLock.checkpoint(() => archive.writer !== null && readAll(archive.writer))) return true;
  // A WAL that is as large as what is free has taken half of the space.
  const limitBytes = Math.min(maxWalBytes, freeBytesOf(path) ?? maxWalBytes);
  if (committedWalBytesOf(files) <= limitBytes) return false;
  abandon(archive, "the storage was unreachable for too long");
  archive.hasGap = true;
  walLock.checkpoint(() => true);
  return false;
}

export function createArchiver(options: ArchiverOptions) {
  const archive: Archiving = {
    ...options,
    walLock: lockWal(options.path),
    progress: openProgress(options.path),
    problems: createProblems(options.log),
    settledMs: createSettledClock(options.nowMs, options.clock.monotonicMs),
    ending: new AbortController(),
    writer: null,
    hasGap: false,
    failedMs: Number.NEGATIVE_INFINITY,
    pausedUntilMs: Number.NEGATIVE_INFINITY,
    isStarted: false,
    lastTicket: 0,
    completeUntilMs: null,
    createdMs: options.clock.monotonicMs(),
    bytesBehind: 0,
    heldUntilMs: Number.NEGATIVE_INFINITY,
  };
  const timer = setInterval(() => tick(archive), SENDING_SHARE * options.intervalMs);
  return {
    start: () => start(archive),
    untilBaseWritten: () => untilBaseWritten(archive),
    /** Counts a commit, which has ended. */
    committed(ticket: number): void {
      archive.lastTicket = ticket;
      const { writer } = archive;
      if (writer !== null) guard(archive, () => advance(writer));
    },
    /** Copies the WAL to the database, unless the WAL has to keep what the archive does not have. */
    checkpoint(): void {
      guard(archive, () => {
        if (checkpoint(archive)) setTimeout(() => tick(archive), AFTER_CHECKPOINT_MS);
      });
    },
    /** The database is closed afterwards. */
    async close(): Promise<void> {
      clearInterval(timer);
      await close(archive, (work) => guard(archive, work));
    },
  };
}
