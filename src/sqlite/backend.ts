import { constants, existsSync, rmSync, statSync } from "node:fs";
import { systemClock } from "../base/clock.ts";
import { suffixes } from "../base/database-url.ts";
import { fail, shellWord } from "../base/error.ts";
import type { ArchiveOptions } from "../domain/archive.ts";
import type { Backend, Store, StoreMode, StoreOptions } from "../domain/store.ts";
import { causeOf } from "./archive/context.ts";
import { followableFrom } from "./archive/follow/prepare.ts";
import { type ArchiveClient, openArchive } from "./archive/thread/client.ts";
import { untilOpen } from "./archive/thread/reopening.ts";
import { diskFiles } from "./disk/files.ts";
import { readMarker } from "./disk/marker.ts";
import { configure, connect, openFile, requireSqlite, sqliteVersion } from "./file/connection.ts";
import { describeSqliteError, withIoErrors } from "./file/errors.ts";
import type { FileDescriptors } from "./file/file-watch.ts";
import * as files from "./file/files.ts";
import * as schema from "./file/migrate.ts";
import { requireFiniteTrees } from "./file/page-tree.ts";
import { lockPath, requireOneName, type ServerLock, takeServerLock } from "./file/server-lock.ts";
import { findWarnings } from "./file/warnings.ts";
import { createStore } from "./store.ts";
import { backUp, verifyDatabase } from "./whole/backup.ts";

/** Page cache, as in better-sqlite3. With SQLite's 2,000 KiB, a look-up takes twice as long. It fits a container of 128 MB. */
const CACHE_KIB = 16_000;

/** Rejects files of a database without it: it was moved or emptied, and SQLite would delete its log. @throws {AppError} operator */
function requireNoOrphans(path: string): void {
  if (!existsSync(path)) {
    const wal = path + suffixes.wal;
    if (files.sizeOf(wal) === 0) return;
    const advice = "move the database file back, or move the WAL away";
    fail("operator", `the database file is missing but its WAL ${wal} exists: ${advice}`);
  }
  if (files.sizeOf(path) > 0) return;
  if (files.sizeOf(path + suffixes.wal) === 0 && !existsSync(lockPath(path))) return;
  const advice = "restore a backup, or delete all of its files to start with an empty database";
  fail("operator", `the file is empty but was a database: ${advice}`);
}

/** Writes the first page of a new file. Call it before taking the lock: an empty file with a lock file has been emptied. */
function createFile(path: string): void {
  const isNew = !existsSync(path);
  try {
    using db = connect(path, true);
    db.run("pragma journal_mode = wal");
  } catch (error) {
    // E.g. on a full disk. An empty file would look like a database that somebody has emptied.
    if (isNew && existsSync(path) && files.sizeOf(path) === 0) rmSync(path);
    throw error;
  }
}

function isServerMode(mode: StoreMode): boolean {
  return mode === "serve" || mode === "serve-read-only";
}

function lockForServer(path: string, mode: StoreMode): ServerLock {
  const kind = mode === "serve" ? "exclusive" : "shared";
  const lock = takeServerLock(path, kind);
  return lock ?? fail("operator", "the database is in use by another server");
}

/** @returns the path without links. @throws {AppError} operator if it is not that of a database, or is not trusted */
function findFile(databaseUrl: string, mode: StoreMode, create: boolean): string {
  const path = files.resolveDatabase(databaseUrl, mode === "read");
  if (create) files.makeParents(path);
  // Throws if a directory must not be searched.
  const file = statSync(path, { throwIfNoEntry: false });
  if (file === undefined && !create)
    fail("operator", "no such file; DATABASE_URL or --database-url selects another one");
  if (file?.isDirectory()) fail("operator", "it is a directory");
  // A named pipe would be waited for without end.
  if (file?.isFile() === false) fail("operator", "it is not a regular file");
  requireNoOrphans(path);
  requireFiniteTrees(path);
  return path;
}

function openAs(mode: StoreMode, path: string) {
  requireOneName(path);
  // Not of a server: while it runs, commands may write.
  const file = openFile(path, mode === "read");
  if (file.atRest) return file;
  const paths = [path, path + suffixes.wal, path + suffixes.shm];
  if (isServerMode(mode)) paths.push(lockPath(path));
  files.requirePermission(paths, constants.R_OK | constants.W_OK);
  return file;
}

/** @throws {AppError} operator if the database is the copy of a standby, and would be written, or served without its age */
function requireNoCopy(path: string, { mode, archive }: StoreOptions): void {
  // A server with an archive compares itself with that.
  if (mode === "read" || archive !== undefined || readMarker(path)?.isCopy !== true) return;
  const advice = "run the command on the server that writes, or serve it with --standby";
  fail("operator", `it is the copy of a standby: ${advice}`);
}

async function serveCopy(
  archive: ArchiveClient,
  path: string,
  lock: ServerLock | null,
  options: StoreOptions,
): Promise<void> {
  await using resources = new AsyncDisposableStack();
  const file = openAs("serve", path);
  const db = resources.adopt(file.connect(), (opened) => opened.close(true));
  schema.requireMigrated(schema.findVersion(db));
  db.run("pragma query_only = on");
  db.run(`pragma cache_size = -${CACHE_KIB}`);
  const opened = Promise.withResolvers<FileDescriptors>();
  const copy = { archive, onOpen: opened.resolve };
  const readOnly = { ...options, mode: "serve-read-only" } as const;
  const store = await createStore({ db, file, lock, archive: null, copy }, readOnly, resources);
  try {
    options.onStandby?.(store);
    await archive.follow(await opened.promise);
    await store.checkUsable();
  } finally {
    options.onStandby?.(null);
    // The thread uses the files.
    if (archive.isCopy()) await archive[Symbol.asyncDispose]();
    await store.close();
  }
}

async function openStore(options: StoreOptions, onCreate: () => void): Promise<Store> {
  const { mode } = options;
  const path = findFile(options.databaseUrl, mode, options.create);
  requireNoCopy(path, options);
  await using resources = new AsyncDisposableStack();
  // Before its copy is written.
  const standbyLock = options.archive?.standby ? resources.use(lockForServer(path, "serve")) : null;
  // It may restore the database.
  const archive =
    options.archive === undefined
      ? null
      : resources.use(await openArchive(path, options.archive, systemClock));
  if (archive?.isCopy()) await serveCopy(archive, path, standbyLock, options);
  if (options.create && files.sizeOf(path) === 0) {
    onCreate();
    createFile(path);
  }
  const file = openAs(mode, path);
  using connection = new DisposableStack();
  // `true` closes the file even if prepared statements are still open.
  const db = connection.adopt(file.connect(), (opened) => opened.close(true));
  // Before the file is changed, or another one is created next to it.
  const version = withIoErrors(db, () => schema.findVersion(db));
  if (!(version === 0 ? options.create : mode === "serve")) schema.requireMigrated(version);
  const lock =
    standbyLock ?? (isServerMode(mode) ? resources.use(lockForServer(path, mode)) : null);
  // Closed before the lock is released.
  resources.use(connection.move());
  requireSqlite(sqliteVersion(db));
  if (!file.atRest) withIoErrors(db, () => configure(db));
  if (mode === "serve-read-only") db.run("pragma query_only = on");
  // Not to read: a server under load holds the write lock almost all the time if the disk is slow.
  if (mode === "serve" || mode === "write") {
    const from = withIoErrors(db, () => schema.migrate(db));
    // Otherwise the tables of a new database would be only in the log, until its first checkpoint.
    if (from === 0) withIoErrors(db, () => db.run("pragma wal_checkpoint(passive)"));
    if (from < schema.SCHEMA_VERSION) options.onMigration?.(from, schema.SCHEMA_VERSION);
  }
  db.run(`pragma cache_size = -${CACHE_KIB}`);
  // The writer retries on SQLITE_BUSY from now on. SQLite itself must not block the event loop of a server.
  if (mode !== "read") db.run("pragma busy_timeout = 0");
  if (options.onWarning !== undefined)
    findWarnings(path, sqliteVersion(db)).forEach(options.onWarning);
  return await createStore({ db, file, lock, archive }, options, resources);
}

/** Opens the store. With an archive, it tries again until that and the database have the same history. */
async function openOrReplace(options: StoreOptions): Promise<Store> {
  const { archive } = options;
  if (archive === undefined) return openStore(options, () => {});
  /** Whether this process has created the database, which was not open since. */
  let isNew = false;
  const open = (attempt: ArchiveOptions) =>
    openStore({ ...options, archive: attempt }, () => {
      isNew = true;
    });
  return await untilOpen(archive, systemClock, open, (reason) => {
    const path = files.resolveDatabase(options.databaseUrl, false);
    // Another standby was faster: this one follows it.
    if (archive.standby && followableFrom(diskFiles(path, verifyDatabase)) !== null) return;
    if (isNew) {
      // Two new machines have started in the same moment.
      files.discard(path);
      rmSync(path + suffixes.archive, { force: true });
      isNew = false;
      return archive.onLog("info", "empty database deleted", { reason });
    }
    {
      // So that one rename moves all of it.
      using db = connect(path);
      db.run("pragma wal_checkpoint(truncate)");
    }
    // It has writes that only its clients may know.
    const kept = files.setAside(path, options.now());
    const changes = `user-api changes --database-url ${shellWord(kept)}`;
    archive.onLog("warn", "database set aside", { reason, kept, changes });
  });
}

/** @throws {AppError} operator with a message that begins with the path, if an error with a known code is the cause */
async function describeOpening<Result>(path: string, open: () => Result | Promise<Result>) {
  try {
    return await open();
  } catch (error) {
    if (causeOf(error) !== null) throw describeSqliteError("ARCHIVE_URL", error);
    throw describeSqliteError(`Cannot open ${path}`, error, path);
  }
}

export const openSqlite: Backend["open"] = (options) =>
  describeOpening(options.databaseUrl, () => openOrReplace(options));

export const backUpSqlite: Backend["backUp"] = async ({ databaseUrl, ...options }) => {
  const opened = await describeOpening(databaseUrl, () => {
    const path = findFile(databaseUrl, "read", false);
    const file = openAs("read", path);
    using db = file.connect();
    const version = schema.readVersion(db);
    if (version === 0 || version === schema.SCHEMA_VERSION) schema.requireCurrentSchema(db);
    return { file, version };
  });
  return await backUp(opened, options);
};
