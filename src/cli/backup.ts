import { mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { basename, dirname, extname, join, resolve } from "node:path";
import { invalidValue, readConfig, readUrl } from "../config.ts";
import { fail, fileProblem, messageOf, systemCode } from "../error.ts";
import { quoteReadably } from "../schema.ts";
import type { BackupSummary, RestoreOptions } from "../store.ts";
import { formatCounts } from "./count-text.ts";
import { createProgress } from "./progress.ts";
import { type CommandSystem, stopSignal, withStore } from "./system.ts";

/** @returns e.g. `1 user, 2 orders and 3 tokens to backup.db (1.5 MB, verified)` */
function describeResult({ users, orders, tokens, bytes }: BackupSummary, target: string): string {
  const counts = formatCounts({ user: users, order: orders, token: tokens });
  return `${counts} to ${target} (${(bytes / 1e6).toFixed(1)} MB, verified)`;
}

/**
 * Copies the database to a new file. A server may be running.
 * @throws {AppError} operator
 */
async function backUpTo(path: string, system: CommandSystem): Promise<void> {
  const contents = await withStore(system, { readOnly: true }, async (store) => {
    using progress = createProgress(system, 1);
    return await store.backUp(path, progress.update, stopSignal(system));
  });
  system.stdout(`Backed up ${describeResult(contents, path)}\n`);
}

/** The end of the names of backups in a directory: the time, which sorts like the names. */
const TIME_AND_EXTENSION = /^-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z\.db$/;

/**
 * Deletes the oldest backups of a database.
 * @param name of the database, with which the names of its backups begin
 * @param newest name of the backup that is kept in any case, even if the clock has been set back
 * @param keep number of backups that remain, from 1
 * @throws {AppError} operator
 */
function deleteOldest(directory: string, name: string, newest: string, keep: number): void {
  const others = readdirSync(directory).filter(
    (file) =>
      file.startsWith(name) && TIME_AND_EXTENSION.test(file.slice(name.length)) && file !== newest,
  );
  for (const file of others.sort().slice(0, Math.max(0, others.length + 1 - keep))) {
    try {
      // Another run may have deleted it.
      rmSync(join(directory, file), { force: true });
    } catch (error) {
      fail("operator", `Cannot delete the old backup ${file}: ${messageOf(error)}`);
    }
  }
}

/**
 * Creates a directory unless it exists, but not its parent: that may be a disk that is not mounted.
 * @throws {AppError} operator
 */
function makeDirectory(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const code = systemCode(error);
    if (code === "EEXIST" && statSync(path, { throwIfNoEntry: false })?.isDirectory()) return;
    const problems: Readonly<Record<string, string>> = {
      EEXIST: "it is not a directory",
      ENOENT: `${dirname(resolve(path))} does not exist`,
    };
    const problem = problems[code] ?? fileProblem(error) ?? messageOf(error);
    fail("operator", `Cannot create ${path}: ${problem}`);
  }
}

export interface BackupOptions {
  /** Where the new file gets a name with the time. It is created if its parent exists. */
  readonly directory?: string;
  /** How many backups with the file name of the database remain in the directory. By default, none is deleted. */
  readonly keep?: string;
}

/**
 * Copies the database to a new file, then deletes old backups. Either a file or a directory is given.
 * @throws {AppError} operator; invalid if the arguments are
 */
export async function backUpStore(
  system: CommandSystem,
  file: string | undefined,
  { directory, keep }: BackupOptions,
): Promise<void> {
  if (keep !== undefined && !/^[1-9]\d{0,5}$/.test(keep)) {
    fail("invalid", invalidValue("--keep", keep, "must be an integer from 1 to 999,999"));
  }
  if (keep !== undefined && directory === undefined) fail("invalid", "--keep needs --directory");
  if (file !== undefined && directory === undefined) return backUpTo(file, system);
  if (file !== undefined || directory === undefined) {
    fail("invalid", "Name either a file or a directory");
  }
  const { databaseUrl } = readConfig(system.environment, system.flags);
  const name = basename(databaseUrl, extname(databaseUrl));
  const newest = `${name}-${system.now().toISOString().replaceAll(":", "-")}.db`;
  makeDirectory(directory);
  await backUpTo(join(directory, newest), system);
  if (keep !== undefined) deleteOldest(directory, name, newest, Number(keep));
}

export interface RestoreBackupOptions {
  /** URL of an archive. Either this or the path of a backup is given. */
  readonly from?: string;
  /** Of the archive, a time. By default, the newest state. */
  readonly at?: string;
}

/** A time of RFC 3339. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i;

/** @throws {AppError} invalid if the arguments are */
function readSource(
  system: CommandSystem,
  file: string | undefined,
  { from, at }: RestoreBackupOptions,
): RestoreOptions["from"] {
  if (at !== undefined && (!TIME.test(at) || Number.isNaN(Date.parse(at)))) {
    fail("invalid", invalidValue("--at", at, "must be a time such as 2026-11-22T06:11:30Z"));
  }
  if (at !== undefined && from === undefined) fail("invalid", "--at needs --from");
  if (file !== undefined && from === undefined) return file;
  if (file !== undefined || from === undefined) {
    fail("invalid", "Name either a backup or, with --from, an archive");
  }
  const storage = system.openStorage(readUrl("archiveUrl", "--from", from), system.environment);
  return { storage, at: at === undefined ? null : new Date(at) };
}

function describeEnd(archivedUntil: Date): string {
  return `Its newest write was made at or before ${archivedUntil.toISOString()}`;
}

/**
 * Restores the newest state of the archive into a temporary file, and verifies it.
 * @throws {AppError} operator if there is no archive, or it cannot be restored
 */
export async function checkArchive(system: CommandSystem): Promise<void> {
  const { archiveUrl, databaseUrl } = readConfig(system.environment, system.flags);
  if (archiveUrl === null) fail("invalid", "Name an archive with --archive-url or ARCHIVE_URL");
  const storage = system.openStorage(archiveUrl, system.environment);
  const backend = system.backendOf(databaseUrl);
  const { archivedUntil, ...contents } = await backend.checkArchive(storage, databaseUrl);
  system.stdout(`Restored ${describeResult(contents, "a temporary file")}\n`);
  system.stdout(`${describeEnd(archivedUntil)}\n`);
}

/**
 * Replaces the database with a backup or a state of its archive, in which the tokens that the previous database has
 * revoked stay revoked. Keeps the previous database.
 * @throws {AppError} operator
 */
export async function restoreBackup(
  system: CommandSystem,
  file: string | undefined,
  options: RestoreBackupOptions,
): Promise<void> {
  const from = readSource(system, file, options);
  const { databaseUrl } = readConfig(system.environment, system.flags);
  const { restore } = system.backendOf(databaseUrl);
  const { previousPath, revokedTokens, lostTokens, validTokens, archivedUntil, ...contents } =
    await restore({ from, databaseUrl, now: system.now });
  system.stdout(`Restored ${describeResult(contents, databaseUrl)}\n`);
  if (archivedUntil !== null) system.stdout(`${describeEnd(archivedUntil)}\n`);
  if (previousPath !== null) system.stdout(`The previous database was kept as ${previousPath}\n`);
  if (revokedTokens === null && validTokens.length > 0) {
    const since = archivedUntil === null ? "since the backup" : "since then";
    system.stdout(`No previous database could be read: tokens revoked ${since} are valid again\n`);
    system.stdout(`Valid tokens: ${quoteReadably(...validTokens)}\n`);
  }
  if (revokedTokens !== null && revokedTokens.length > 0) {
    system.stdout(`Revoked as in the previous database: ${quoteReadably(...revokedTokens)}\n`);
  }
  if (lostTokens.length > 0) {
    system.stdout(
      `No longer valid, because the backup is older: ${quoteReadably(...lostTokens)}\n`,
    );
  }
}
