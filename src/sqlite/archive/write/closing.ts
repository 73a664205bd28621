/** The end of an archive: the rest is sent, the log is closed, and the next start can prove that it continues. */
import { AppError, messageOf } from "../../../base/error.ts";
import { isOver, problemOf } from "../context.ts";
import type { SegmentId } from "../keys.ts";
import type { DatabaseFiles } from "../machine.ts";
import {
  type Archiving,
  advance,
  endGeneration,
  type GenerationWriter,
  isComplete,
  lastStored,
  readAll,
} from "./segments.ts";

/** How long a stopping server waits for the storage. */
const CLOSE_TIMEOUT_MS = 5_000;
/** How long it waits for other processes, so that the next start can prove that it continues the archive. */
const OTHERS_TIMEOUT_MS = 500;
const POLL_MS = 20;

/** The archive is complete, but only the WAL says so, which the last process that closes the database deletes. */
const IN_USE =
  "another process uses the database: if that ends before the next start, all of it is copied again";

type Guard = (work: () => void) => void;

function markComplete(files: DatabaseFiles, { generation, number }: SegmentId): void {
  const marker = files.readMarker();
  if (marker === null) return;
  const complete = { generation, number, file: files.state() };
  files.writeMarker({ ...marker, complete, restored: null });
}

/**
 * Copies all of the WAL to the database, and notes that the archive has it: the next start can continue from here, also as
 * a standby of the server that has the archive then.
 * @returns whether it has
 */
export function noteEnd({ walPin, files }: Archiving, writer: GenerationWriter): boolean {
  const isRead = () => isComplete(writer) || (readAll(writer) && isComplete(writer));
  return walPin.complete(isRead, () => markComplete(files, lastStored(writer)));
}

/** Sends the rest, until the archive has all of the database. @returns why that was not noted; `null` if it was */
async function finish(archive: Archiving, guard: Guard): Promise<string | null> {
  const { machine } = archive;
  let deadlineMs = machine.monotonicMs() + CLOSE_TIMEOUT_MS;
  let hasAll = false;
  let isNoted = false;
  while (machine.monotonicMs() < deadlineMs) {
    const { writer, isStarted } = archive;
    if (writer === null && (!isStarted || problemOf(archive) !== null)) break;
    guard(() => {
      if (writer === null) return;
      advance(writer);
      if (!isComplete(writer)) return;
      if (!hasAll) deadlineMs = Math.min(deadlineMs, machine.monotonicMs() + OTHERS_TIMEOUT_MS);
      hasAll = true;
      isNoted = noteEnd(archive, writer);
    });
    if (isNoted) return null;
    await machine.sleep(POLL_MS);
  }
  return hasAll ? IN_USE : (problemOf(archive) ?? "a base is being written");
}

/** Says that this server writes nothing more, so that the next start need not wait. */
async function closeLog({ log, machine }: Archiving, writer: GenerationWriter): Promise<void> {
  try {
    await Promise.race([writer.log.close(machine.nowMs()), machine.sleep(CLOSE_TIMEOUT_MS / 2)]);
  } catch (error) {
    log("warn", "archive not closed", { reason: messageOf(error) });
  }
}

/** Brings the archive up to date if the storage responds in time. */
export async function close(archive: Archiving, guard: Guard): Promise<void> {
  const { log, isStarted } = archive;
  const reason = await finish(archive, guard);
  const { writer } = archive;
  if (reason !== null && isStarted && !isOver(archive))
    log("warn", "archive not complete", { reason });
  if (writer !== null && reason === null) await closeLog(archive, writer);
  archive.ending.abort(new AppError("unavailable", "the archive was closed"));
  if (archive.writer !== null) endGeneration(archive.writer);
  archive.progress[Symbol.dispose]();
  archive.walPin[Symbol.dispose]();
}
