import type { Database } from "bun:sqlite";
import { existsSync, mkdirSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { createClock } from "../clock.ts";
import { suffixes } from "../database-url.ts";
import { AppError, fail, messageOf, systemCode } from "../error.ts";
import { createLargePages } from "../large-page.ts";
import type { OpenStore, Store, StoreOptions } from "../store.ts";
import { createWriteProbe } from "../write-probe.ts";
import { backUp } from "./backup.ts";
import { checkDatabase } from "./check.ts";
import { createCheckpointer } from "./checkpoint.ts";
import { configure, connect } from "./connection.ts";
import { withCopySource } from "./copy-source.ts";
import { describeSqliteError, unreadableError } from "./errors.ts";
import { watchFiles } from "./file-watch.ts";
import { createIdempotencyStore } from "./idempotency.ts";
import { createBulkStores } from "./import.ts";
import { createListReader } from "./lists.ts";
import { backUpBeforeMigration, migrate, missingMigrations, SCHEMA_VERSION } from "./migrate.ts";
import { createOrderStore } from "./orders.ts";
import { createReader, type Reader } from "./reader.ts";
import { LOCK_TIMEOUT_MS, lockPath, requireUnused, takeServerLock } from "./server-lock.ts";
import { createTokenStore } from "./tokens.ts";
import { createUserStore } from "./users.ts";
import { createWriteBatch } from "./write-batch.ts";
import { createWriter } from "./writer.ts";

/**
 * Size of SQLite's page cache, as in better-sqlite3. With SQLite's default of 2,000 KiB each row needs one more
 * system call, which doubles the time of a look-up. Small enough for a container of 128 MB.
 */
const CACHE_KIB = 16_000;

/** Interval of the file check when there are no writes. */
const WATCH_INTERVAL_MS = 1_000;

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
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

/** Creates the store of an open, migrated database. @param release called when the store is closed */
function createStore(db: Database, options: StoreOptions, release: () => void): Store {
  const { now } = options;
  const files = watchFiles(db.filename, (problem) => {
    options.onStorageProblem?.(problem);
    // The log does not belong to a file that was overwritten, and would damage it.
    if (problem !== null && !files.isOverwritten()) checkpointWal(db, reader);
  });
  const reader = createReader(db, files.isReadable);
  const checkpointer = createCheckpointer(db);
  const writer = createWriter(createWriteBatch(db, files), reader, checkpointer, options);
  const clock = createClock(now);
  const idempotency = createIdempotencyStore(db, now, clock);
  const largePages = createLargePages(options.maxUnsentBytes);
  const lists = createListReader(db, reader, files, largePages);
  const context = { db, reader, writer, lists, idempotency, clock };
  // Writes the first page without changing it.
  const rewriteFirstPage = db.prepare(`pragma user_version = ${SCHEMA_VERSION}`);
  const probe = createWriteProbe({
    write: () => writer.forTable("user_version").write(() => rewriteFirstPage.run()),
    isFull: writer.isFull,
  });
  const watchTimer = setInterval(() => files.isInPlace(), WATCH_INTERVAL_MS);
  // The timer must not keep a command running.
  watchTimer.unref();
  return {
    users: createUserStore(context),
    orders: createOrderStore(context),
    tokens: createTokenStore(context),
    bulk: createBulkStores(context),
    async checkWritable() {
      files.requireInPlace();
      if (!files.isReadable()) throw unreadableError();
      await probe();
    },
    async statistics() {
      return {
        pendingWrites: writer.pending(),
        unsentBytes: largePages.unsentBytes(),
        databaseBytes: sizeOf(db.filename),
        walBytes: sizeOf(`${db.filename}-wal`),
      };
    },
    backUp: (path, onProgress, signal) => backUp(db, path, onProgress, signal),
    withCopySource: (work) => withCopySource(db.filename, work),
    check: async () => reader.forTable("sqlite_schema").read(checkDatabase, db),
    async deleteExpiredKeys() {
      const { write } = writer.forTable("idempotency_keys");
      while (await write(() => idempotency.deleteExpired())) {
        // One transaction at a time, so that other writes run in between.
      }
    },
    async close() {
      clearInterval(watchTimer);
      await writer.idle();
      reader.reset();
      using cleanup = new DisposableStack();
      cleanup.defer(files.close);
      cleanup.defer(release);
      cleanup.defer(checkpointer.close);
      cleanup.defer(lists.close);
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
 * Call it before changing the file or creating another file next to it.
 * @returns the number of missing migrations; 0 if the file does not exist
 * @throws {AppError} operator if the database belongs to another application
 */
function requireOwnDatabase(path: string): number {
  if (!existsSync(path)) return 0;
  using db = connect(path);
  return missingMigrations(db);
}

/**
 * Writes something and rolls it back, because SQLite opens a read-only file without an error and even
 * `begin immediate` succeeds on it.
 * @throws {SQLiteError} SQLITE_READONLY
 */
function requireWritable(db: Database): void {
  db.run("begin immediate");
  try {
    db.run("pragma user_version = 0");
  } finally {
    db.run("rollback");
  }
}

/** Detects a damaged root page of a table at startup, not at the first request. */
function touchTables(db: Database): void {
  for (const table of ["users", "orders", "imported_orders", "tokens", "idempotency_keys"]) {
    // Selects all columns, because SQLite could read fewer from an index alone.
    db.prepare(`select * from ${table} limit 1`).get();
  }
}

function upgrade(db: Database): void {
  if (missingMigrations(db) > 0) backUpBeforeMigration(db);
  migrate(db);
}

/**
 * Migrates the database for a command. While a server is running, only the server may do so.
 * @throws {AppError} operator if a server is using a database with an older schema
 */
function migrateUnderLock(db: Database, path: string): void {
  if (missingMigrations(db) === 0) return;
  using lock = takeServerLock(path, LOCK_TIMEOUT_MS);
  if (lock === null)
    fail("operator", "the schema is older than this program, and a server is using the database");
  upgrade(db);
}

/** @see OpenStore */
export const openSqlite: OpenStore = async (options) => {
  const path = options.databaseUrl;
  using resources = new DisposableStack();
  try {
    if (options.create) mkdirSync(dirname(path), { recursive: true });
    else if (!existsSync(path)) fail("operator", "no such file");
    requireNoOrphans(path);
    if (options.create && sizeOf(path) === 0) createFile(path);
    const missing = requireOwnDatabase(path);
    // E.g. a backup that was cut off.
    if (!options.create && missing === SCHEMA_VERSION) fail("operator", "the database is empty");
    // A symbolic link and its target are one database.
    const realPath = existsSync(path) ? realpathSync(path) : path;
    if (options.exclusive || missing > 0) requireUnused(realPath);
    if (options.exclusive) {
      const lock = takeServerLock(realPath, LOCK_TIMEOUT_MS);
      if (lock === null) fail("operator", "the database is in use by another server");
      resources.use(lock);
    }
    // `true` closes the file even if prepared statements are still open.
    const db = resources.adopt(connect(realPath, options.create), (opened) => opened.close(true));
    requireWritable(db);
    configure(db);
    db.run(`pragma cache_size = -${CACHE_KIB}`);
    if (options.exclusive) upgrade(db);
    else migrateUnderLock(db, realPath);
    touchTables(db);
    // The writer retries on SQLITE_BUSY from now on. SQLite itself must not block the event loop.
    db.run("pragma busy_timeout = 0");
    const cleanup = new DisposableStack();
    const store = createStore(db, options, () => cleanup.dispose());
    cleanup.use(resources.move());
    return store;
  } catch (error) {
    // All statements are constant, so SQLITE_ERROR means that the schema is not the expected one.
    const isSchema = systemCode(error) === "SQLITE_ERROR";
    const cause = isSchema
      ? new AppError("operator", `the schema is damaged: ${messageOf(error)}`)
      : error;
    throw describeSqliteError(`Cannot open ${path}`, cause);
  }
};
