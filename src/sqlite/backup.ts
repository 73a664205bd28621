/** A copy of a database that is in use, and the proof that it is good. */
import { Database } from "bun:sqlite";
import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import { AppError, fail, reason } from "../error.ts";
import type { Contents, OnProgress } from "../store.ts";
import { checkDatabase } from "./check.ts";
import { missingMigrations } from "./migrate.ts";
import { createThread } from "./thread.ts";

/** How often progress is told. */
const PROGRESS_MS = 100;

/** Only its owner may read a copy while it is made: it holds personal data. */
const PRIVATE = 0o600;

/** Until this returns, what is in the file, or which files are in the folder, may be lost. */
function sync(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function count(db: Database, table: "users" | "orders" | "tokens"): number {
  return db.prepare<{ rows: number }, []>(`select count(*) as rows from ${table}`).get()?.rows ?? 0;
}

/**
 * Walks a database that nobody else uses.
 * @returns what is in it
 * @throws {AppError} operator when it is not ours, is newer than this program, or is damaged
 */
export function verify(path: string): Contents {
  using db = new Database(path, { readonly: true, strict: true });
  if (missingMigrations(db) > 0) fail("operator", "its schema is older than this program");
  const [finding] = checkDatabase(db);
  if (finding !== undefined) fail("operator", finding);
  return {
    users: count(db, "users"),
    orders: count(db, "orders"),
    tokens: count(db, "tokens"),
    bytes: statSync(path).size,
  };
}

/** Puts a finished file in its place for good: after a power cut it is there whole, or not at all. */
export function put(draft: string, path: string): void {
  sync(draft);
  renameSync(draft, path);
  sync(dirname(resolve(path)));
}

/** What one page of the database takes, free ones not among them: how large the copy will be. */
function expectedBytes(db: Database): number {
  const pragma = (name: string) =>
    Number(db.prepare<Record<string, number>, []>(`pragma ${name}`).get()?.[name]);
  return (pragma("page_count") - pragma("freelist_count")) * pragma("page_size");
}

/** @throws {AppError} operator */
async function copy(db: Database, draft: string, onProgress: OnProgress): Promise<void> {
  const expected = Math.max(1, expectedBytes(db));
  const thread = createThread(db.filename);
  const telling = setInterval(
    () => onProgress(Math.min(1, statSync(draft).size / expected)),
    PROGRESS_MS,
  );
  try {
    const failure = await thread.run("vacuum into ?", draft);
    if (failure !== null) fail("operator", failure);
    onProgress(1);
  } finally {
    clearInterval(telling);
    thread.close();
  }
}

/** @see Store.backUp */
export async function backUp(
  db: Database,
  path: string,
  onProgress: OnProgress,
): Promise<Contents> {
  const draft = `${path}.${process.pid}.partial`;
  try {
    if (existsSync(path)) fail("operator", "there is such a file already");
    // SQLite takes an empty file, too.
    writeFileSync(draft, "", { mode: PRIVATE, flag: "wx" });
    await copy(db, draft, onProgress);
    const contents = verify(draft);
    chmodSync(draft, statSync(db.filename).mode & 0o777);
    put(draft, path);
    return contents;
  } catch (error) {
    throw new AppError("operator", `Cannot back up to ${path}: ${reason(error)}`);
  } finally {
    rmSync(draft, { force: true });
  }
}
