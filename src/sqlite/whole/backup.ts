/** Copies a database while it is in use, and verifies the copy. */
import { existsSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { databaseFiles, suffixes } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { claimTemporary, makeTemporaryDatabase } from "../../base/temporary-file.ts";
import type { Backend, BackUpOptions, BackupSummary } from "../../domain/store.ts";
import { connect, connectAtRest, countRows, type DatabaseFile } from "../file/connection.ts";
import { describeSqliteError, withIoErrors } from "../file/errors.ts";
import { copyOwnership, PRIVATE_MODE, publish, requireAbsent, sizeOf } from "../file/files.ts";
import { requireCurrentSchema, SCHEMA_VERSION } from "../file/migrate.ts";
import { isServed } from "../file/server-lock.ts";
import { createStatementThread } from "../file/thread.ts";
import { appendChecksum } from "./backup-checksum.ts";
import { checkDatabase, findInFile } from "./check.ts";

const WATCH_MS = 100;

/** @param path of a database that no other process uses. @throws {AppError} operator if it is not ours, or is damaged */
export function verifyDatabase(path: string): BackupSummary {
  // Not a read-only connection: SQLite does not verify CHECK constraints on one.
  using db = connect(path);
  db.run("pragma query_only = on");
  requireCurrentSchema(db);
  const [finding] = checkDatabase(db);
  if (finding !== undefined) fail("operator", finding);
  return {
    users: countRows(db, "users"),
    orders: countRows(db, "orders"),
    tokens: countRows(db, "tokens"),
    bytes: sizeOf(path),
    warnings: [],
  };
}

/** @throws {AppError} operator if the copy fails. @throws the reason of `signal` if it is aborted */
async function vacuumInto(file: DatabaseFile, temporaryPath: string, signal: AbortSignal) {
  const sourceBytes = () => sizeOf(file.path) + sizeOf(file.path + suffixes.wal);
  const bytesBefore = sourceBytes();
  const thread = createStatementThread(file.path, file.atRest);
  const endless = Promise.withResolvers<string>();
  const watch = setInterval(() => {
    // In a damaged tree, pages can occur again and again. A copy of an intact one is not larger than the original, which
    // may have grown, or been moved away.
    const maxBytes = 2 * Math.max(bytesBefore, sourceBytes());
    if (sizeOf(temporaryPath) > maxBytes) endless.resolve("the file is damaged");
  }, WATCH_MS);
  signal.addEventListener("abort", () => thread.close());
  try {
    const copied = thread.run("vacuum into ?", temporaryPath);
    const failure = await Promise.race([copied, endless.promise]);
    if (failure !== null) fail("operator", failure);
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    clearInterval(watch);
    thread.close();
    file.requireUnchanged();
  }
}

/** For the metrics of a server: where none has run, a command that only reads leaves no trace. A backup is complete without it. */
function recordBackup(databasePath: string): void {
  const marker = databasePath + suffixes.lastBackup;
  if (!existsSync(marker) && !isServed(databasePath)) return;
  // Others may write to the directory, too: a file that they have put there is replaced, never opened.
  const temporaryPath = claimTemporary(marker);
  try {
    writeFileSync(temporaryPath, "", { mode: PRIVATE_MODE, flag: "wx" });
    copyOwnership(temporaryPath, databasePath);
    renameSync(temporaryPath, marker);
  } catch {
    // The directory may be read-only for this user.
    rmSync(temporaryPath, { force: true });
  }
}

/** @see Store.statistics */
export function lastBackupS(databasePath: string): number | null {
  const marker = databasePath + suffixes.lastBackup;
  const { mtimeMs } = statSync(marker, { throwIfNoEntry: false }) ?? {};
  return mtimeMs === undefined ? null : mtimeMs / 1000;
}

function verifyCopy(path: string, version: number): Awaited<ReturnType<Backend["backUp"]>> {
  if (version === SCHEMA_VERSION) {
    {
      // A copy of the backup may replace the database, which then has another feed.
      using copy = connect(path);
      withIoErrors(copy, () => copy.run("update feed set file = null"));
    }
    return verifyDatabase(path);
  }
  using copy = connectAtRest(path);
  const [finding] = withIoErrors(copy, () => findInFile(copy).take(1).toArray());
  if (finding !== undefined) fail("operator", finding);
  return { schema_version: version, bytes: sizeOf(path), warnings: [] };
}

export async function backUp(
  { file, version }: { file: DatabaseFile; version: number },
  { path, signal }: Omit<BackUpOptions, "databaseUrl">,
): ReturnType<Backend["backUp"]> {
  try {
    requireAbsent(path);
    if (databaseFiles(file.path).some((each) => resolve(each) === resolve(path)))
      fail("operator", "the file belongs to the database");
    using temporary = makeTemporaryDatabase(path);
    const temporaryPath = temporary.path;
    await vacuumInto(file, temporaryPath, signal);
    const contents = verifyCopy(temporaryPath, version);
    await appendChecksum(temporaryPath);
    const bytes = sizeOf(temporaryPath);
    const warning = copyOwnership(temporaryPath, file.path);
    publish(temporaryPath, path);
    recordBackup(file.path);
    return { ...contents, bytes, warnings: warning === null ? [] : [warning] };
  } catch (error) {
    throw describeSqliteError(`Cannot back up to ${path}`, error);
  }
}
