import { Database } from "bun:sqlite";
import { existsSync, mkdirSync, realpathSync } from "node:fs";
import { dirname } from "node:path";
import { AppError, reason } from "../error.ts";
import type { OpenStore, Store, StoreOptions } from "../store.ts";
import { createWriter } from "./commit.ts";
import { createKeys } from "./keys.ts";
import { takeServerLock } from "./lock.ts";
import { migrate, missingMigrations } from "./migrate.ts";
import { createOrderStore } from "./orders.ts";
import { createTokenStore } from "./tokens.ts";
import { createUserStore } from "./users.ts";

/** How long a server waits for the lock: a command beside it holds it for some milliseconds. */
const LOCK_PATIENCE_MS = 500;
/** How long opening waits for another process, e.g. one that migrates. */
const OPEN_PATIENCE_MS = 5_000;

function cannotOpen(path: string, error: unknown): AppError {
  const known: Record<string, string> = {
    SQLITE_CANTOPEN:
      "the file cannot be opened or made there; check the folder and its permissions",
    SQLITE_READONLY: "the file or its folder cannot be written",
    SQLITE_NOTADB: "the file is not a SQLite database",
    SQLITE_CORRUPT: "the file is damaged",
    SQLITE_BUSY: "another process is writing it",
    EACCES: "no permission to make its folder",
    EROFS: "its folder cannot be made on a read-only disk",
    ENOTDIR: "a part of its path is not a folder",
    EEXIST: "a part of its path is not a folder",
  };
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const match = Object.keys(known).find((prefix) => code.startsWith(prefix));
  const why = match === undefined ? reason(error) : known[match];
  return new AppError("operator", `Cannot open ${path}: ${why}`);
}

/** Nothing that SQLite leaves off by default may stay off: durability, foreign keys, patience. */
function configure(db: Database): void {
  db.run(`pragma busy_timeout = ${OPEN_PATIENCE_MS}`);
  db.run("pragma journal_mode = wal");
  // One fsync a commit: with less, a power cut takes acknowledged writes with it.
  db.run("pragma synchronous = full");
  // On macOS fsync alone does not reach the disk.
  db.run("pragma fullfsync = on");
  db.run("pragma foreign_keys = on");
  db.run("pragma trusted_schema = off");
}

/** The store over an open, migrated database; closing it disposes of `resources`, the database one. */
function createStore(db: Database, options: StoreOptions, resources: Disposable): Store {
  const { now } = options;
  const writer = createWriter(db, options.max_pending_writes);
  const keys = createKeys(db, now);
  const alive = db.prepare("select 1");
  return {
    users: createUserStore(db, writer, keys, now),
    orders: createOrderStore(db, writer, keys, now),
    tokens: createTokenStore(db, writer, now),
    async ping() {
      alive.get();
    },
    async sweep() {
      await writer.write(() => keys.sweep());
    },
    async close() {
      await writer.idle();
      resources[Symbol.dispose]();
    },
  };
}

/** A migration is for the process that serves, or for one that can be sure that none does. */
function bringUpToDate(db: Database, may_migrate: boolean): void {
  if (missingMigrations(db) === 0) return;
  if (!may_migrate) {
    throw new AppError("operator", "its schema is older, and a server of that version is running");
  }
  migrate(db);
}

/** @see OpenStore */
export const openSqlite: OpenStore = async (options) => {
  const path = options.database_url;
  using resources = new DisposableStack();
  try {
    mkdirSync(dirname(path), { recursive: true });
    const patience_ms = options.exclusive ? LOCK_PATIENCE_MS : 0;
    const lock = takeServerLock(existsSync(path) ? realpathSync(path) : path, patience_ms);
    if (lock === null && options.exclusive) {
      throw new AppError("operator", "another server is using it");
    }
    if (lock !== null) resources.use(lock);
    const db = resources.adopt(
      new Database(path, { create: true, readwrite: true, strict: true }),
      (opened) => opened.close(),
    );
    configure(db);
    bringUpToDate(db, lock !== null);
    // From here on a wait is the writer's, who does not hold up the event loop.
    db.run("pragma busy_timeout = 0");
    if (!options.exclusive) lock?.[Symbol.dispose]();
    return createStore(db, options, resources.move());
  } catch (error) {
    throw cannotOpen(path, error);
  }
};
