import type { Database } from "bun:sqlite";
import { existsSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fail, messageOf } from "../../base/error.ts";
import { fsyncPath, makeTemporaryDatabase } from "../../base/temporary-file.ts";
import { timeInName } from "../../base/time-in-name.ts";
import { requireOwnNeighbours } from "../../base/trusted-path.ts";
import type { Backend, BackupSummary } from "../../domain/store.ts";
import { stateOf, type Token, tokenColumns } from "../../domain/token.ts";
import { markerOfRestored } from "../archive/read/rebuild.ts";
import { markReplaced, settleMarker, writeMarker } from "../disk/marker.ts";
import { restoreToFile } from "../disk/restored-file.ts";
import { connect, countRows, isAtRest } from "../file/connection.ts";
import { describeSqliteError, isBusy } from "../file/errors.ts";
import * as files from "../file/files.ts";
import { APPLICATION_ID, requireCurrentSchema } from "../file/migrate.ts";
import { requireFiniteTrees } from "../file/page-tree.ts";
import { LOCK_TIMEOUT_MS, lockPath, requireOneName, takeServerLock } from "../file/server-lock.ts";
import { renameFeed } from "../tables/feed.ts";
import { verifyDatabase } from "./backup.ts";
import { findChange, NO_CHECKSUM, removeChecksum, requireEnd } from "./backup-checksum.ts";

function findBackup(from: string): string {
  if (!existsSync(from)) fail("operator", "no such file");
  // SQLite looks for the WAL next to the file, not next to a link to it.
  const path = files.resolveDatabase(from, true);
  if (!statSync(path).isFile()) fail("operator", "it is not a regular file");
  // SQLite would treat an empty file as a new database.
  const header = files.readHeader(path);
  if (header === null) fail("operator", "the file is not a SQLite database");
  requireEnd(path, header);
  requireFiniteTrees(path);
  requireOneName(path);
  const advice = "create a backup with `user-api backup`";
  if (!isAtRest(path)) fail("operator", `it is a database in use, not a backup: ${advice}`);
  return path;
}

/** Rejects a file that is probably named by mistake. One of ours that is damaged is next to its lock file. */
function requireOurs(path: string): void {
  const file = statSync(path, { throwIfNoEntry: false });
  if (file?.isFile() === false) fail("operator", `${path} is not a regular file`);
  if (files.sizeOf(path) === 0 || existsSync(lockPath(path))) return;
  if (files.readHeader(path)?.applicationId === APPLICATION_ID) return;
  fail("operator", `${path} is not a user-api database: move it away`);
}

async function prepareReplacement(from: string, temporaryPath: string): Promise<BackupSummary> {
  // `copyFile` would copy the permissions, and the backup may be read-only.
  await Bun.write(temporaryPath, Bun.file(from));
  const problem = await findChange(temporaryPath);
  if (problem === null) removeChecksum(temporaryPath);
  else if (problem !== NO_CHECKSUM) fail("operator", problem);
  {
    using db = connect(temporaryPath);
    requireCurrentSchema(db);
    // A single file, in whatever journal mode the backup was last opened.
    db.run("pragma journal_mode = delete");
    // The planner would follow statistics of a time with other data: look-ups can become ten times slower.
    for (const table of ["sqlite_stat1", "sqlite_stat4"]) db.run(`drop table if exists ${table}`);
    renameFeed(db);
  }
  return { ...verifyDatabase(temporaryPath), warnings: problem === null ? [] : [problem] };
}

function readTokens(db: Database): readonly Token[] {
  return db.prepare<Token, []>(`select ${tokenColumns} from tokens order by id`).all();
}

/** A damaged database keeps its WAL. @returns what is in it; `null` if it cannot be read */
function mergeWal(path: string) {
  // Again, because an archive may have been downloaded since.
  requireOwnNeighbours(path);
  // SQLite would delete the WAL next to a file that is not a database.
  if (!existsSync(path) || files.readHeader(path) === null) return null;
  try {
    requireFiniteTrees(path);
    using db = connect(path);
    db.run(`pragma busy_timeout = ${LOCK_TIMEOUT_MS}`);
    db.run("pragma journal_mode = delete");
    requireCurrentSchema(db);
    const last = "select created_at as ms from changes order by id desc limit 1";
    const ms = db.prepare<{ ms: number }, []>(last).get()?.ms;
    const changedAt = ms === undefined ? null : new Date(ms);
    const [users, orders] = [countRows(db, "users"), countRows(db, "orders")];
    return { users, orders, changedAt, known: readTokens(db) };
  } catch (error) {
    if (isBusy(error)) fail("operator", "another process is using the database: stop it first");
    return null;
  }
}

/** Those of the previous database must not become valid again. @param previous `null` if they are unknown */
function revokeTokens(temporaryPath: string, previous: readonly Token[] | null) {
  using db = connect(temporaryPath);
  const revoke = db.prepare<{ name: string }, { previous: string }>(`
    update tokens
    set revoked_at = value ->> 'revoked_at'
    from json_each($previous)
    where hash = value ->> 'hash' and revoked_at is null and value ->> 'revoked_at' is not null
    returning name
  `);
  const revoked = revoke.all({ previous: JSON.stringify(previous ?? []) });
  const names = revoked.map(({ name }) => name);
  return { revokedTokens: previous && names, tokens: readTokens(db) };
}

/** The new database must never be opened with the previous WAL, even if that WAL is all that is left. */
function replaceDatabase(temporaryPath: string, path: string, previousPath: string): boolean {
  const sidecars = files.sidecarsOf(path);
  const previousFiles = existsSync(path) ? ["", ...sidecars] : sidecars;
  for (const suffix of previousFiles) files.linkOrCopy(path + suffix, previousPath + suffix);
  try {
    for (const suffix of sidecars) rmSync(path + suffix);
    renameSync(temporaryPath, path);
  } catch (error) {
    for (const suffix of sidecars)
      if (!existsSync(path + suffix)) files.linkOrCopy(previousPath + suffix, path + suffix);
    for (const suffix of previousFiles) rmSync(previousPath + suffix);
    throw error;
  }
  fsyncPath(dirname(resolve(path)));
  return previousFiles.length > 0;
}

export const restoreSqlite: Backend["restore"] = async ({ from, databaseUrl, now }) => {
  const isBackup = typeof from === "string";
  try {
    const backup = isBackup ? findBackup(from) : null;
    const path = files.resolveDatabase(databaseUrl, false);
    requireOurs(path);
    files.makeParents(path);
    const hadLockFile = existsSync(lockPath(path));
    using lock = takeServerLock(path);
    if (lock === null) fail("operator", "a server is using the database: stop it first");
    using created = new DisposableStack();
    if (!hadLockFile) created.defer(() => rmSync(lockPath(path), { force: true }));
    // Only under the lock: a concurrent restore may be writing its temporary file.
    using temporary = makeTemporaryDatabase(path);
    const temporaryPath = temporary.path;
    // Like a copied file, it gets another feed when a server opens it.
    const archived = isBackup ? null : await restoreToFile(temporaryPath, from.storage, from.at);
    const contents =
      backup === null
        ? verifyDatabase(temporaryPath)
        : await prepareReplacement(backup, temporaryPath);
    const previous = mergeWal(path);
    const { revokedTokens, tokens } = revokeTokens(temporaryPath, previous?.known ?? null);
    fsyncPath(temporaryPath);
    // Not that of the directory, which somebody else may have made.
    const original = files.sizeOf(path) > 0 ? path : lockPath(path);
    const hasOwner = original === path || hadLockFile;
    const warning = hasOwner ? files.copyOwnership(temporaryPath, original) : null;
    const time = now();
    const previousPath = `${path}.${timeInName(time)}`;
    const isSame = !revokedTokens?.length;
    if (archived === null) markReplaced(path, temporaryPath);
    else {
      const state = files.fileState(temporaryPath);
      writeMarker(path, markerOfRestored(archived, isSame, state), temporaryPath);
    }
    const hadPrevious = replaceDatabase(temporaryPath, path, previousPath);
    created.move();
    const warnings = [...contents.warnings, ...(archived?.warnings ?? [])];
    if (warning !== null) warnings.push(warning);
    try {
      settleMarker(path);
    } catch (error) {
      // The marker is valid for the database itself.
      warnings.push(`a copy of the database cannot continue its archive: ${messageOf(error)}`);
    }
    if (!hadLockFile) files.copyOwnership(lockPath(path), path);
    const activeNames = (these: readonly Token[]) =>
      these.filter((token) => stateOf(token, time) === "valid").map(({ name }) => name);
    const kept = new Set(tokens.map(({ hash }) => hash));
    return {
      ...contents,
      archivedUntil: archived === null ? null : new Date(archived.timeMs),
      warnings,
      previousPath: hadPrevious ? previousPath : null,
      previous,
      revokedTokens,
      lostTokens: activeNames((previous?.known ?? []).filter(({ hash }) => !kept.has(hash))),
      validTokens: activeNames(tokens),
    };
  } catch (error) {
    throw describeSqliteError(`Cannot restore ${isBackup ? from : from.storage.url}`, error);
  }
};
