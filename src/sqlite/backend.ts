import type { Database } from "bun:sqlite";
import { constants, existsSync, mkdirSync, realpathSync, statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { createClock } from "../clock.ts";
import { suffixes } from "../database-url.ts";
import { AppError, fail, messageOf, systemCode } from "../error.ts";
import { createLargePages } from "../large-page.ts";
import { requireCurrent } from "../schema-version.ts";
import {
  type OnCommit,
  type OpenStore,
  type Store,
  type StoreOptions,
  servesReads,
} from "../store.ts";
import { createWriteProbe } from "../write-probe.ts";
import { type ArchiveClient, openArchive } from "./archive/client.ts";
import {
  createReaderAtRest,
  nothingToWatch,
  type Source,
  sharedSource,
  sourceAtRest,
} from "./at-rest.ts";
import { backUp, lastBackupS } from "./backup.ts";
import { createChangeRecorder, createChangeStore, createChangeWatch } from "./changes.ts";
import { checkDatabase } from "./check.ts";
import { createCheckpointer } from "./checkpoint.ts";
import {
  CHECKPOINT_PAGES,
  configure,
  connect,
  PAGE_BYTES,
  requireSqlite,
  sqliteVersion,
} from "./connection.ts";
import { withCopySource } from "./copy-source.ts";
import { describeSqliteError, isBusy, unreadableError } from "./errors.ts";
import { continueFeed, hasFeed } from "./feed.ts";
import { watchFiles } from "./file-watch.ts";
import { requirePermission } from "./files.ts";
import { createIdempotencyStore } from "./idempotency.ts";
import { createBulkStores } from "./import.ts";
import { createListReader } from "./lists.ts";
import { backUpBeforeMigration, findVersion, migrate, SCHEMA_VERSION } from "./migrate.ts";
import { createOrderStore } from "./orders.ts";
import { createReader, type Reader } from "./reader.ts";
import {
  LOCK_TIMEOUT_MS,
  lockPath,
  mayBeServedWithoutLock,
  type ServerLock,
  takeServerLock,
} from "./server-lock.ts";
import { createTokenStore } from "./tokens.ts";
import { createUserStore } from "./users.ts";
import { findWarnings } from "./warnings.ts";
import { createWriteBatch } from "./write-batch.ts";
import { createWriter, openGate } from "./writer.ts";

/**
 * Size of SQLite's page cache, as in better-sqlite3. With SQLite's default of 2,000 KiB each row needs one more
 * system call, which doubles the time of a look-up. Small enough for a container of 128 MB.
 */
const CACHE_KIB = 16_000;

/** Interval of the file check when there are no writes. */
const WATCH_INTERVAL_MS = 1_000;
/** Interval at which a server marks its file: a copy of the file that is older than this is recognized. */
const MARK_INTERVAL_MS = 10 * 60 * 1000;

/** After this time, a server whose lock file was deleted has taken the lock again, unless it is frozen. */
const RETAKE_MS = 2.5 * WATCH_INTERVAL_MS;
const POLL_MS = 50;

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** @returns the bytes that users other than root can still write; `null` if the directory has been moved away */
function freeBytesOf(path: string): number | null {
  try {
    const { bavail, bsize } = statfsSync(dirname(path));
    return bavail * bsize;
  } catch {
    return null;
  }
}

/** A record of this length makes the probe write nine pages. A create writes three to eight. */
const PROBE_LENGTH = 16_000;

/** @returns writes as many pages as a request, or a nearly full disk would seem healthy, and leaves no row */
function preparePageWrite(db: Database): () => void {
  const insert = db.prepare<null, { record: string }>(`
    insert into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ('', 'probe', '', $record, '')
  `);
  const remove = db.prepare<null, []>(`
    delete from idempotency_keys
    where owner = '' and key = 'probe'
  `);
  const record = JSON.stringify({ filler: "x".repeat(PROBE_LENGTH) });
  return () => {
    insert.run({ record });
    remove.run();
  };
}

function fileStatistics(path: string) {
  return {
    databaseBytes: sizeOf(path),
    walBytes: sizeOf(path + suffixes.log),
    freeBytes: freeBytesOf(path),
    lastBackupS: lastBackupS(path),
  };
}

/** Checkpoints the log: its file may have been moved or deleted, and then its writes would be lost at exit. */
function checkpointWal(db: Database, reader: Reader): void {
  reader.reset();
  try {
    db.run("pragma wal_checkpoint(passive)");
  } catch {
    // The disk is failing, or another connection reads an older state. Closing the database tries again.
  }
}

/**
 * Creates the store of an open database.
 * @param lock `null` if the store is not exclusive
 * @param archive `null` if there is none
 * @param opened closes the database. Closing the store disposes of it.
 */
async function createStore(
  db: Database,
  source: Source,
  options: StoreOptions,
  lock: ServerLock | null,
  archive: ArchiveClient | null,
  opened: DisposableStack,
): Promise<Store> {
  const { now } = options;
  const { path, atRest } = source;
  const onProblem = (problem: string | null) => {
    options.onStorageProblem?.(problem);
    // The log does not belong to a file that was overwritten, and would damage it.
    if (problem !== null && !files.isOverwritten()) checkpointWal(db, reader);
  };
  using resources = new DisposableStack();
  const watched = atRest ? null : watchFiles(path, onProblem, lock);
  const files = watched ?? nothingToWatch;
  resources.defer(files.close);
  resources.use(opened.move());
  const sharedReader = createReader(db, files.isReadable);
  const reader = atRest ? createReaderAtRest(sharedReader, source) : sharedReader;
  const checkpointer = createCheckpointer(db, archive);
  resources.defer(checkpointer.close);
  // Before anything is written.
  if (watched !== null) await archive?.start(path, watched.descriptors);
  const watch = resources.use(createChangeWatch(db));
  const onCommit: OnCommit = (writes, durationMs) => {
    options.onCommit?.(writes, durationMs);
    watch.check();
  };
  const writer = createWriter(
    createWriteBatch(db, files),
    reader,
    checkpointer,
    {
      ...options,
      onCommit,
    },
    archive ?? openGate,
  );
  const clock = createClock(now);
  const idempotency = createIdempotencyStore(db, now, clock);
  const largePages = createLargePages(options.maxUnsentBytes);
  const own = resources.adopt(source.connect(), (connection) => connection.close(true));
  const lists = createListReader(db, own, reader, files, largePages);
  const recordChange = createChangeRecorder(db, now);
  const context = { db, reader, writer, lists, idempotency, clock, recordChange };
  const writePages = preparePageWrite(db);
  const probe = servesReads(options)
    ? async () => {}
    : createWriteProbe({
        write: () => writer.forTable("idempotency_keys").write(writePages),
        isFull: writer.isFull,
      });
  let checkedLogBytes = 0;
  /** Only this process checkpoints a log that is archived, and other processes may write while it does not. */
  function checkLog(): void {
    const { logBytes } = archive?.state() ?? { logBytes: 0 };
    if (logBytes === checkedLogBytes || logBytes < CHECKPOINT_PAGES * PAGE_BYTES) return;
    checkedLogBytes = logBytes;
    // The end of a write starts a checkpoint.
    writer
      .forTable("changes")
      .writeUnlimited(() => {})
      .catch(() => {});
  }
  using timers = new DisposableStack();
  const watchTimer = setInterval(() => {
    files.isInPlace();
    checkLog();
  }, WATCH_INTERVAL_MS);
  // The timer must not keep a command running.
  watchTimer.unref();
  timers.defer(() => clearInterval(watchTimer));
  if (options.exclusive && !servesReads(options)) {
    await checkpointer.prepare();
    const { writeUnlimited } = writer.forTable("feed");
    await continueFeed(db, path, writeUnlimited);
    // If it fails, the next one tries again.
    const mark = () => continueFeed(db, path, writeUnlimited).catch(() => {});
    const markTimer = setInterval(mark, MARK_INTERVAL_MS);
    markTimer.unref();
    timers.defer(() => clearInterval(markTimer));
  }
  const stopTimers = timers.move();
  const cleanup = resources.move();
  return {
    users: createUserStore(context),
    orders: createOrderStore(context),
    tokens: createTokenStore(context),
    changes: createChangeStore(context, watch),
    bulk: createBulkStores(context),
    async checkUsable() {
      files.requireInPlace();
      if (!files.isReadable()) throw unreadableError();
      await probe();
    },
    holdBody: largePages.hold,
    statistics: async () => ({
      pendingWrites: writer.pending(),
      unsentBytes: largePages.unsentBytes(),
      ...fileStatistics(path),
    }),
    archive: () => archive?.state() ?? null,
    backUp: (target, onProgress, signal) => backUp(db, source, target, onProgress, signal),
    withCopySource: (work) => withCopySource(source, work),
    check: async () => reader.forTable("sqlite_schema").read(checkDatabase, db, atRest),
    async deleteExpiredKeys() {
      const { write } = writer.forTable("idempotency_keys");
      while (await write(() => idempotency.deleteExpired())) {
        // One transaction at a time, so that other writes run in between.
      }
    },
    async close() {
      // First: their writes would come after the archive is closed.
      stopTimers.dispose();
      await writer.idle();
      reader.reset();
      await archive?.close();
      cleanup.dispose();
    },
  };
}

/**
 * Rejects other files of a database without the database itself. It was probably moved or emptied, and SQLite would
 * delete its log and start with an empty database.
 * @throws {AppError} operator
 */
function requireNoOrphans(path: string): void {
  if (!existsSync(path)) {
    const log = path + suffixes.log;
    if (sizeOf(log) === 0) return;
    fail(
      "operator",
      `the database file is missing but its log ${log} exists: move the database file back, or move the log away`,
    );
  }
  if (sizeOf(path) > 0) return;
  // The other files are next to the target of a symbolic link.
  const realPath = realpathSync(path);
  if (sizeOf(realPath + suffixes.log) === 0 && !existsSync(lockPath(realPath))) return;
  fail(
    "operator",
    "the file is empty but was a database: restore a backup, or delete all of its files to start with an empty database",
  );
}

/**
 * Writes the first page of a new file. Call it before taking the lock: a file that is empty although a lock file is
 * next to it has been emptied.
 */
function createFile(path: string): void {
  using db = connect(path, true);
  db.run("pragma journal_mode = wal");
}

/**
 * Writes something and rolls it back, because SQLite opens a read-only file without an error and even
 * `begin immediate` succeeds on it.
 * @throws {AppError} operator if another process is writing
 * @throws {SQLiteError} SQLITE_READONLY
 */
function requireWritable(db: Database): void {
  try {
    db.run("begin immediate");
  } catch (error) {
    if (isBusy(error)) fail("operator", "another process, such as sqlite3, holds the write lock");
    throw error;
  }
  try {
    db.run("pragma user_version = 0");
  } finally {
    db.run("rollback");
  }
}

/** Detects a damaged root page of a table at startup, not at the first request. */
function touchTables(db: Database): void {
  const tables = ["users", "orders", "imported_orders", "tokens", "idempotency_keys"];
  if (hasFeed(db)) tables.push("changes", "feed");
  for (const table of tables) {
    // Selects all columns, because SQLite could read fewer from an index alone.
    db.prepare(`select * from ${table} limit 1`).get();
  }
}

/**
 * Call it before changing the file or creating another file next to it.
 * @returns the schema version; 0 if the database is new
 * @throws {AppError} operator if this store cannot use the database
 */
function requireUsable(db: Database, { create, exclusive, readOnly = false }: StoreOptions) {
  const version = findVersion(db);
  // E.g. a backup that was cut off.
  if (version === 0 && !create) fail("operator", "the database is empty");
  // A server migrates an older schema, and a command that only reads can read it.
  if (version > 0 && exclusive === readOnly) requireCurrent(version, SCHEMA_VERSION);
  return version;
}

/** Waits for a server whose lock file was deleted to create it again. */
async function waitForLockFile(path: string): Promise<void> {
  let found = false;
  for (let waitedMs = 0; !found && waitedMs < RETAKE_MS; waitedMs += POLL_MS) {
    found = existsSync(lockPath(path));
    // Also then, because that server takes the lock a moment after it has created the file.
    await Bun.sleep(POLL_MS);
  }
}

/**
 * @param mayBeServed see `mayBeServedWithoutLock`
 * @throws {AppError} operator if another process serves or migrates the database
 */
async function lockForServer(
  path: string,
  options: StoreOptions,
  mayBeServed: boolean,
): Promise<ServerLock> {
  if (mayBeServed) await waitForLockFile(path);
  const kind = servesReads(options) ? "shared" : "exclusive";
  const lock = takeServerLock(path, LOCK_TIMEOUT_MS, kind);
  return lock ?? fail("operator", "the database is in use by another server");
}

/** Creates the schema for a command. @throws {AppError} operator if a server does so */
function createUnderLock(db: Database, path: string): number {
  using lock = takeServerLock(path, LOCK_TIMEOUT_MS);
  if (lock === null) fail("operator", "a server is creating the database: run the command again");
  return migrate(db);
}

/** Creates the schema, or migrates it if the store is exclusive. A database that has data is copied first. */
function prepareSchema(db: Database, path: string, { exclusive, onMigration }: StoreOptions): void {
  if (findVersion(db) === SCHEMA_VERSION) return;
  if (exclusive) backUpBeforeMigration(db);
  const from = exclusive ? migrate(db) : createUnderLock(db, path);
  // Otherwise the tables of a new database would be only in the log, until its first checkpoint.
  if (from === 0) db.run("pragma wal_checkpoint(passive)");
  if (from < SCHEMA_VERSION) onMigration?.(from, SCHEMA_VERSION);
}

/** @throws {AppError} operator if this process may not open a file that the store needs */
function requirePermissions({ path, atRest }: Source, { exclusive }: StoreOptions): void {
  const { R_OK, W_OK } = constants;
  if (atRest) {
    requirePermission([path], R_OK);
    return;
  }
  const files = [path, path + suffixes.log, path + suffixes.index];
  requirePermission(exclusive ? [...files, lockPath(path)] : files, R_OK | W_OK);
}

/** All statements are constant, so SQLITE_ERROR means that the schema is not the expected one. */
function isSchemaError(error: unknown): boolean {
  return systemCode(error) === "SQLITE_ERROR";
}

async function openStore(path: string, options: StoreOptions): Promise<Store> {
  if (options.create) mkdirSync(dirname(path), { recursive: true });
  else if (!existsSync(path)) fail("operator", "no such file");
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory())
    fail("operator", "it is a directory");
  requireNoOrphans(path);
  using resources = new DisposableStack();
  // It may restore the database.
  const archive =
    options.archive === undefined ? null : resources.use(await openArchive(path, options.archive));
  if (options.create && sizeOf(path) === 0) createFile(path);
  // A symbolic link and its target are one database.
  const realPath = realpathSync(path);
  const readOnly = options.readOnly === true;
  // Not of a server, beside which commands may write.
  const mayBeAtRest = readOnly && !options.exclusive;
  const source = (mayBeAtRest ? sourceAtRest(realPath) : null) ?? sharedSource(realPath);
  requirePermissions(source, options);
  const mayBeServed = options.exclusive && mayBeServedWithoutLock(realPath);
  const first = resources.adopt(source.connect(), (db) => db.close(true));
  const version = requireUsable(first, options);
  // The last connection that is closed deletes the log, with which an archive continues. Without one, that frees space.
  if (archive === null) first.close(true);
  const lock = options.exclusive
    ? resources.use(await lockForServer(realPath, options, mayBeServed))
    : null;
  try {
    // `true` closes the file even if prepared statements are still open.
    const db = resources.adopt(source.connect(), (opened) => opened.close(true));
    requireSqlite(sqliteVersion(db));
    // Not to read: a server under load holds the write lock almost all the time if the disk is slow.
    if (!readOnly) requireWritable(db);
    if (!source.atRest) configure(db);
    if (servesReads(options)) db.run("pragma query_only = on");
    if (!readOnly) prepareSchema(db, realPath, options);
    db.run(`pragma cache_size = -${CACHE_KIB}`);
    touchTables(db);
    // The writer retries on SQLITE_BUSY from now on. SQLite itself must not block the event loop.
    db.run("pragma busy_timeout = 0");
    if (options.onWarning !== undefined)
      findWarnings(realPath, sqliteVersion(db)).forEach(options.onWarning);
    return await createStore(db, source, options, lock, archive, resources);
  } catch (error) {
    // A statement can need what a later migration adds.
    if (readOnly && isSchemaError(error)) requireCurrent(version, SCHEMA_VERSION);
    throw error;
  }
}

/** @see OpenStore */
export const openSqlite: OpenStore = async (options) => {
  const path = options.databaseUrl;
  try {
    return await openStore(path, options);
  } catch (error) {
    const cause = isSchemaError(error)
      ? new AppError("operator", `the schema is damaged: ${messageOf(error)}`)
      : error;
    throw describeSqliteError(`Cannot open ${path}`, cause);
  }
};
