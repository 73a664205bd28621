/** Decides what a server does that has an archive and no database. */
import { existsSync, lstatSync, rmSync, statSync } from "node:fs";
import { AppError, fail, shellWord } from "../../base/error.ts";
import { claimTemporary } from "../../base/temporary-file.ts";
import type { ArchiveLog } from "../../domain/archive.ts";
import { type ObjectStorage, withRetries } from "../../domain/object-storage.ts";
import { hasBase, usedPrefixes } from "../archive/contents.ts";
import { markRestored, type Restored, restoreTo } from "../archive/fetch.ts";
import { withoutBase } from "../archive/find-state.ts";
import { meaningOf } from "../file/errors.ts";
import { discard, makeParents, publish, requireAbsent } from "../file/files.ts";
import { verifyDatabase } from "./backup.ts";

/** Restores the database to a path with no file, or an empty one. */
async function restore(storage: ObjectStorage, path: string): Promise<Restored> {
  makeParents(path);
  // Asked again, because the lease may have been waited for. Not a symbolic link, which would become a file.
  const file = lstatSync(path, { throwIfNoEntry: false });
  if (file?.isFile() && file.size === 0) rmSync(path);
  requireAbsent(path);
  const temporaryPath = claimTemporary(path);
  try {
    const restored = await restoreTo(temporaryPath, storage, null);
    verifyDatabase(temporaryPath);
    publish(temporaryPath, path);
    markRestored(path, restored, true);
    return restored;
  } catch (error) {
    const problem = error instanceof AppError ? null : meaningOf(error);
    throw problem === null ? error : new AppError("operator", `cannot restore ${path}: ${problem}`);
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
 * Restores a missing database from its archive, or refuses to create an empty one instead, also if the archive has no base
 * yet or any more.
 * @throws {AppError} operator if the database is missing, and must not be restored or cannot be
 * @throws {AppError} unavailable if the database is missing and the storage is unreachable
 */
export async function requireDatabase(
  storage: ObjectStorage,
  path: string,
  { restoreIfMissing, acquireLease, log }: MissingOptions,
): Promise<void> {
  if (existsSync(path) && statSync(path).size > 0) return;
  const patient = withRetries(storage);
  const used = await usedPrefixes(patient);
  if (used.length === 0) return;
  // Before the archive is read, so that no server writes to it meanwhile, perhaps the first base.
  if (restoreIfMissing) await acquireLease();
  if (!(await hasBase(patient))) {
    const advice = "put back what was deleted, or choose another ARCHIVE_URL";
    fail("operator", `it ${withoutBase(used)}: ${advice}`);
  }
  if (!restoreIfMissing) {
    const command = `user-api restore --from ${shellWord(storage.url)} --database-url ${shellWord(path)}`;
    const advice = `run \`${command}\`, or set ARCHIVE_RESTORE=if-missing`;
    fail("operator", `it has a database, but ${path} is missing: ${advice}`);
  }
  const { state, warnings } = await restore(storage, path);
  for (const reason of warnings) log("warn", "archive needs attention", { reason });
  const until = new Date(state.timeMs).toISOString();
  log("info", "archive restored", { storage: storage.url, until });
}
