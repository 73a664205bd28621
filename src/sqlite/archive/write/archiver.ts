/** Keeps the archive of an open database up to date, generation after generation. Runs in a separate thread. */
import { AppError, fail, isDiskError, messageOf, systemCode } from "../../../base/error.ts";
import { type ArchiverOptions, causeOf, createContext } from "../context.ts";
import { isAtOrBefore, parseKey } from "../keys.ts";
import { isUnreadable } from "../read/rebuild.ts";
import { writeBaseIfDue } from "./bases.ts";
import { beginGeneration, type Continuation } from "./generation.ts";
import { watchWrites } from "./hand-over.ts";
import { deleteIfDue } from "./retention.ts";
import type { Archiving } from "./segments.ts";
import * as segments from "./segments.ts";

/** How long the start of a server that needs the storage waits for the first base while nothing of it is stored. */
const START_TIMEOUT_MS = 10_000;
const POLL_MS = 20;
/** An unexpected error that ended a generation less than this ago can end each one: the next base waits as long. */
const PAUSE_MS = 60_000;
/** Of looks for one object that a standby cannot read, and of bases that are written because one is lost. */
const LACK_INTERVAL_MS = 10 * 60 * 1000;
/** After this part of the interval, what is new is sent. The rest is for the upload. */
const SENDING_SHARE = 0.75;
/** Pause between a checkpoint and sending. A WAL that was restarted can be continued after a crash only if a part of it was sent. */
const AFTER_CHECKPOINT_MS = 100;

/** Ends the current generation, without what the archive does not have. The next one begins with a base. */
function abandon(archive: Archiving, reason: string): void {
  if (archive.writer === null) return;
  segments.endGeneration(archive.writer);
  archive.writer = null;
  archive.hasGap = true;
  if (archive.isOver()) return;
  archive.log("warn", "archive needs a new base", { reason });
  beginSoon(archive);
}

/** This server no longer writes to the archive, as a rule because another one does. */
function supersede(archive: Archiving, reason: string): void {
  if (archive.isOver()) return;
  archive.ending.abort(new AppError("operator", reason));
  archive.log("error", "archive given up", { reason });
  const { writer } = archive;
  if (writer !== null) archive.guard(() => segments.noteEnd(writer));
  abandon(archive, reason);
  archive.onSuperseded(reason);
}

/** A read that fails is repeated. All else ends the generation: a restart of the WAL, lost objects of the storage, or a bug. */
function handleError(archive: Archiving, error: unknown): void {
  const isBeingWritten = error instanceof AppError && error.code === "unavailable";
  if (isBeingWritten || isDiskError(error) || /^E[A-Z]/.test(systemCode(error))) {
    archive.problems.report("reading", error);
    return;
  }
  archive.problems.report("segments", error);
  const nowMs = archive.machine.monotonicMs();
  if (!(error instanceof AppError)) {
    if (nowMs - archive.failedMs < PAUSE_MS) archive.pausedUntilMs = nowMs + PAUSE_MS;
    archive.failedMs = nowMs;
  }
  abandon(archive, messageOf(error));
}

/** Looks for what a standby cannot read. If this server cannot, either, it begins with a new base. */
async function lookForLack(archive: Archiving, key: string): Promise<void> {
  const { writer, machine, lack } = archive;
  const nowMs = machine.monotonicMs();
  const isKnown = lack !== null && nowMs - lack.lookedMs < LACK_INTERVAL_MS;
  if (writer?.newestBase == null || (isKnown && (lack.isLost || lack.key === key))) return;
  const slot = parseKey(key);
  // Then the standby can restore what follows.
  if (slot !== null && !isAtOrBefore(writer.newestBase.first, slot)) return;
  const isLost = await isUnreadable(archive, slot);
  archive.lack = { key, lookedMs: nowMs, isLost };
  if (isLost && writer === archive.writer) abandon(archive, `a standby lacks ${key}`);
}

async function begin(archive: Archiving, followed: Continuation | null = null): Promise<void> {
  const { storage, log, problems } = archive;
  const begun = await beginGeneration(archive, followed).catch((error) => {
    if (!archive.isStarted || causeOf(error) === null) throw error;
    supersede(archive, error.message);
    return null;
  });
  if (begun === null) return;
  if (begun.damage !== null) log("warn", "archive needs a new base", { reason: begun.damage });
  if (archive.isOver()) return;
  const writer = await segments.createGenerationWriter(archive, begun);
  if (archive.isOver()) return segments.endGeneration(writer);
  archive.writer = writer;
  archive.hasGap = false;
  problems.clearRequired();
  const { number: generation, parent } = begun.generation;
  log("info", "archive opened", { storage: storage.url, generation, continued: parent !== null });
  tick(archive);
}

/** @param work begins a generation. Only one is begun at a time */
function open(archive: Archiving, work: () => Promise<void>): Promise<void> {
  return archive.problems.run("opening", () => archive.isOver() || !archive.isStarted, work);
}

function beginSoon(archive: Archiving): void {
  const { problems } = archive;
  // `tick` calls it again.
  if (archive.machine.monotonicMs() < archive.pausedUntilMs) return;
  const attempt = () => begin(archive);
  void open(archive, () => problems.retry("opening", archive.isOver, attempt));
}

/** Reports how far the archive is. If the WAL cannot be read, the bytes are those of the last time. */
function reportState(archive: Archiving): void {
  if (archive.isOver()) return;
  const { writer, files, database, machine, completeUntilMs, createdMs, onState } = archive;
  const base = writer?.newestBase ?? null;
  let isBehind = true;
  const lookedMs = machine.nowMs();
  archive.guard(() => {
    isBehind = writer === null || !segments.isComplete(writer);
    archive.bytesBehind = writer === null ? database.walBytes() : segments.bytesBehind(writer);
  });
  const monotonicMs = machine.monotonicMs();
  const behindMs = isBehind ? monotonicMs - (completeUntilMs ?? createdMs) : 0;
  if (completeUntilMs !== null) files.noteArchived(lookedMs - behindMs);
  onState({
    secondsBehind: behindMs / 1000,
    bytesBehind: archive.bytesBehind,
    lastBaseS: base === null ? null : base.timeMs / 1000,
    heldForMs: archive.heldUntilMs - monotonicMs,
  });
}

function tick(archive: Archiving): void {
  if (archive.isOver()) return;
  const { writer, problems, isStarted } = archive;
  // A start that has failed is over.
  if (writer === null && isStarted) beginSoon(archive);
  archive.guard(() => {
    if (writer !== null) {
      segments.advance(writer);
      writeBaseIfDue(writer);
      deleteIfDue(writer);
    }
    problems.clear("reading");
  });
  reportState(archive);
}

/** A single server in async mode does not wait for its storage. @throws {AppError} operator if the archive cannot be used */
async function start(archive: Archiving, followed: Continuation | null): Promise<void> {
  const isNeeded = archive.commit === "sync" || archive.standby;
  const opening = open(archive, () => begin(archive, followed));
  try {
    await (isNeeded ? opening : Promise.race([opening, archive.problems.firstFailure]));
  } catch (error) {
    if (isNeeded || !(error instanceof AppError) || error.code !== "unavailable") throw error;
    archive.problems.report("opening", error);
  }
  archive.isStarted = true;
}

async function untilBaseWritten(archive: Archiving): Promise<void> {
  for (let failingMs = 0; archive.writer?.newestBase == null; failingMs += POLL_MS) {
    archive.signal.throwIfAborted();
    const reason = archive.problem();
    if (reason === null) failingMs = 0;
    else if (failingMs > START_TIMEOUT_MS) fail("unavailable", reason);
    await archive.machine.sleep(POLL_MS);
  }
}

/** Copies a WAL that the archive has, or that has become too large. @returns whether the archive has all of it */
function checkpoint(archive: Archiving): boolean {
  const { walPin, files, database, maxWalBytes } = archive;
  if (walPin.checkpoint(() => archive.writer !== null && segments.readAll(archive.writer)))
    return true;
  // A WAL that is as large as what is free has taken half of the space.
  const limitBytes = Math.min(maxWalBytes, files.freeBytes() ?? maxWalBytes);
  if (database.walBytes() <= limitBytes) return false;
  abandon(archive, "the storage was unreachable for too long");
  archive.hasGap = true;
  walPin.checkpoint(() => true);
  return false;
}

export function createArchiver(options: ArchiverOptions) {
  const { machine } = options;
  const context = createContext(options, {
    onSuperseded: (holder) => supersede(archive, `${holder} has taken over the archive`),
    onError: (error) => handleError(archive, error),
    onHeld(untilMs) {
      archive.heldUntilMs = untilMs;
      reportState(archive);
    },
    onLack: (key) => lookForLack(archive, key),
  });
  const archive: Archiving = { ...context, writer: null };
  const ticking = machine.every(SENDING_SHARE * options.intervalMs, () => tick(archive));
  const watching = archive.standby
    ? watchWrites(archive, (reason) => supersede(archive, reason))
    : null;
  return {
    start: (followed: Continuation | null) => start(archive, followed),
    untilBaseWritten: () => untilBaseWritten(archive),
    committed(ticket: number): void {
      archive.lastTicket = ticket;
      const { writer } = archive;
      if (writer !== null) archive.guard(() => segments.advance(writer));
    },
    checkpoint(): void {
      archive.guard(() => {
        if (checkpoint(archive)) void machine.sleep(AFTER_CHECKPOINT_MS).then(() => tick(archive));
      });
    },
    /** The database is closed afterwards. */
    async close(): Promise<void> {
      ticking[Symbol.dispose]();
      watching?.[Symbol.dispose]();
      await segments.close(archive);
    },
  };
}
