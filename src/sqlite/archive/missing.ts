/** Decides what a server does that has an archive and no database. */
import { existsSync, mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";
import type { ArchiveLog } from "../../archive.ts";
import { fail } from "../../error.ts";
import { type ObjectStorage, withRetries } from "../../object-storage.ts";
import { claimTemporary } from "../../temporary-file.ts";
import { verifyDatabase } from "../backup.ts";
import { discard, publish, requireAbsent } from "../files.ts";
import { type ArchivedState, fetchDatabase, findState } from "./fetch.ts";
import { newestNumber, readEnd } from "./history.ts";
import { fileState, writeMarker } from "./marker.ts";

/**
 * Marks a database as one that was restored, so that a server can continue the archive with it.
 * @param isSame whether the file has exactly this state
 */
export async function markRestored(
  storage: ObjectStorage,
  path: string,
  state: ArchivedState,
  isSame: boolean,
): Promise<void> {
  const end = await readEnd(storage);
  const complete = isSame && state.isNewest ? { ...state.last, file: fileState(path) } : null;
  const names = end === null ? [] : [end.newest.name];
  writeMarker(path, { names, complete, restored: end?.parent ?? null });
}

async function restore(storage: ObjectStorage, path: string): Promise<ArchivedState> {
  mkdirSync(dirname(path), { recursive: true });
  requireAbsent(path);
  const temporaryPath = claimTemporary(path);
  try {
    const patient = withRetries(storage);
    const state = await findState(patient, null);
    await fetchDatabase(patient, state, temporaryPath);
    verifyDatabase(temporaryPath);
    publish(temporaryPath, path);
    await markRestored(storage, path, state, true);
    return state;
  } finally {
    discard(temporaryPath);
  }
}

interface MissingOptions {
  readonly restoreIfMissing: boolean;
  readonly acquireLease: () => Promise<unknown>;
  readonly log: ArchiveLog;
}

/**
 * Restores a missing database from its archive, or refuses to create an empty one instead. Does nothing if the archive
 * is empty.
 * @throws {AppError} operator if the database is missing, and must not be restored or cannot be
 * @throws {AppError} unavailable if the database is missing and the storage is away
 */
export async function requireDatabase(
  storage: ObjectStorage,
  path: string,
  { restoreIfMissing, acquireLease, log }: MissingOptions,
): Promise<void> {
  if (existsSync(path) && statSync(path).size > 0) return;
  if ((await newestNumber(storage)) === 0) return;
  if (!restoreIfMissing) {
    fail(
      "operator",
      `there is no database, but its archive has one: run \`user-api restore --from ${storage.url}\`, or set ARCHIVE_RESTORE=if-missing`,
    );
  }
  // Before the archive is read, so that no server writes to it meanwhile.
  await acquireLease();
  const { timeMs } = await restore(storage, path);
  log("info", "archive restored", { storage: storage.url, until: new Date(timeMs).toISOString() });
}
