import type { Database } from "bun:sqlite";
import { existsSync, mkdirSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { createClock } from "../clock.ts";
import { fail } from "../error.ts";
import { createLargePages } from "../large-page.ts";
import type { OpenStore, Store, StoreOptions } from "../store.ts";
import { createWriteProbe } from "../write-probe.ts";
import { backUp } from "./backup.ts";
import { checkDatabase } from "./check.ts";
import { createCheckpointer } from "./checkpoint.ts";
import { configure, connect } from "./connection.ts";
import { withCopySource } from "./copy-source.ts";
import { describeSqliteError } from "./errors.ts";
import { watchFiles } from "./file-watch.ts";
import { createIdempotencyStore } from "./idempotency.ts";
import { createOrderBulkStore } from "./import.orders.ts";
import { createUserBulkStore } from "./import.users.ts";
import { createListReader } from "./lists.ts";
import { backUpBeforeMigration, migrate, missingMigrations, SCHEMA_VERSION } from "./migrate.ts";
import { createOrderStore } from "./orders.ts";
import { createReader, type Reader } from "./reader.ts";
import { LOCK_TIMEOUT_MS, requireUnused, takeServerLock } from "./server-lock.ts";
import { createTokenStore } from "./tokens.ts";
import { createUserStore } from "./users.ts";
import { createWriter } from "./writer.ts";

/**
 * What is kept of the file in memory, at most; as better-sqlite3 has it. Beyond SQLite's own 2,000 KiB each
 * row is a system call more, which takes as long as the rest of its look-up. Small enough for a container
 * of 128 MB.
 */
const CACHE_KIB = 16_000;

/** How often a server looks whether its files are in place while nobody writes. */
const WATCH_INTERVAL_MS = 1_000;

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/**
 * Brings the open write-ahead log into the database, since its file may have been deleted: what was
 * acknowledged would be lost when the process ends.
 */
function checkpointWal(db: Database, reader: Reader): void {
  reader.reset();
  try {
    db.run("pragma wal_checkpoint(passive)");
  } catch {
    // The disk fails, or another connection reads an older state: the log is saved when the database is closed.
  }
}

/** The store over an open, migrated database. @param release called when it is closed */
function createStore(db: Database, options: StoreOptions, release: () => void): Store {
  const { now } = options;
  const reader = createReader(db);
  const files = watchFiles({
    path: db.filename,
    onChange(problem) {
      options.onStorageProblem?.(problem);
      if (problem !== null) checkpointWal(db, reader);
    },
  });
  const watch_timer = setInterval(() => files.isInPlace(), WATCH_INTERVAL_MS);
  // A command ends when it is done.
  watch_timer.unref();
  const checkpointer = createCheckpointer(db);
  const writer = createWriter(db, reader, checkpointer, files, options);
  const clock = createClock(now);
  const idempotency = createIdempotencyStore(db, now, clock);
  // The first page is written anew, and nothing changes.
  const rewriteFirstPage = db.prepare(`pragma user_version = ${SCHEMA_VERSION}`);
  const large_pages = createLargePages(options.max_unsent_bytes);
  const lists = createListReader(db, reader, files, large_pages);
  const tableAccess = (table: string) => [reader.forTable(table), writer.forTable(table)] as const;
  const users = createUserStore(db, lists, ...tableAccess("users"), idempotency, clock);
  const orders = createOrderStore(db, lists, ...tableAccess("orders"), idempotency, clock);
  const tokens = createTokenStore(db, ...tableAccess("tokens"), clock);
  const probe = createWriteProbe({
    write: () => writer.write(() => rewriteFirstPage.run()),
    isFull: writer.isFull,
  });
  return {
    users,
    orders,
    tokens,
    sync_reads: { user: users.getSync, order: orders.getSync, token: tokens.findSync },
    bulk: {
      users: createUserBulkStore(db, ...tableAccess("users"), clock),
      orders: createOrderBulkStore(db, ...tableAccess("orders"), clock),
    },
    async checkWritable() {
      files.check();
      await probe();
    },
    async statistics() {
      return {
        pending_writes: writer.pending(),
        unsent_bytes: large_pages.unsentBytes(),
        database_bytes: sizeOf(db.filename),
        wal_bytes: sizeOf(`${db.filename}-wal`),
      };
    },
    backUp: (path, onProgress, signal) => backUp(db, path, onProgress, signal),
    withCopySource: (work) => withCopySource(db.filename, work),
    async check() {
      return reader.read(checkDatabase, db);
    },
    async deleteExpiredKeys() {
      const { write } = writer.forTable("idempotency_keys");
      while (await write(() => idempotency.deleteExpired())) {
        // One transaction after the other, so that others come between.
      }
    },
    async close() {
      clearInterval(watch_timer);
      await writer.idle();
      reader.reset();
      lists.close();
      checkpointer.close();
      release();
    },
  };
}

/** A log without its database belongs to one that was moved away. SQLite would delete it. */
function requireNoOrphanWal(path: string): void {
  const log = `${path}-wal`;
  if (existsSync(path) || sizeOf(log) === 0) return;
  fail(
    "operator",
    `the file is missing, but its log ${log} is there: move the file back, or the log away`,
  );
}

/** Before a file is changed in any way, nor another put beside it, it must be known to be ours. */
function requireOwnDatabase(path: string): void {
  if (!existsSync(path)) return;
  using db = connect(path);
  missingMigrations(db);
}

/**
 * SQLite opens a file that it may only read without a word, and `begin immediate` passes on it: so
 * something is written, and taken back.
 */
function requireWritable(db: Database): void {
  db.run("begin immediate");
  try {
    db.run("pragma user_version = 0");
  } finally {
    db.run("rollback");
  }
}

/** Damage at the root of a table is found now, not by the first request. */
function touchTables(db: Database): void {
  for (const table of ["users", "orders", "imported_orders", "tokens", "idempotency_keys"]) {
    // All columns, since an index would do for fewer.
    db.prepare(`select * from ${table} limit 1`).get();
  }
}

function upgrade(db: Database): void {
  if (missingMigrations(db) > 0) backUpBeforeMigration(db);
  migrate(db);
}

/** A migration is for the process that serves, or for one that can be sure that none does. */
function migrateUnderLock(db: Database, path: string): void {
  if (missingMigrations(db) === 0) return;
  using lock = takeServerLock(path, LOCK_TIMEOUT_MS);
  if (lock === null) fail("operator", "its schema is older, and a server is using it");
  upgrade(db);
}

/** @see OpenStore */
export const openSqlite: OpenStore = async (options) => {
  const path = options.database_url;
  using resources = new DisposableStack();
  try {
    if (options.create) mkdirSync(dirname(path), { recursive: true });
    else if (!existsSync(path)) fail("operator", "there is no such file");
    requireNoOrphanWal(path);
    requireOwnDatabase(path);
    // A link and its target are one database.
    const real_path = existsSync(path) ? realpathSync(path) : path;
    if (options.exclusive) {
      requireUnused(real_path);
      const lock = takeServerLock(real_path, LOCK_TIMEOUT_MS);
      if (lock === null) fail("operator", "another server is using it");
      resources.use(lock);
    }
    // With `true` statements that are still prepared do not keep the file open.
    const db = resources.adopt(connect(real_path, options.create), (opened) => opened.close(true));
    requireWritable(db);
    configure(db);
    db.run(`pragma cache_size = -${CACHE_KIB}`);
    if (options.exclusive) upgrade(db);
    else migrateUnderLock(db, real_path);
    touchTables(db);
    // From here on a wait is the writer's, who does not hold up the event loop.
    db.run("pragma busy_timeout = 0");
    const cleanup = new DisposableStack();
    const store = createStore(db, options, () => cleanup.dispose());
    cleanup.use(resources.move());
    return store;
  } catch (error) {
    throw describeSqliteError(`Cannot open ${path}`, error);
  }
};
