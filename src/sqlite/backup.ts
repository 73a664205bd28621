/** A copy of a database that is in use, and the proof that it is good. */
import { Database } from "bun:sqlite";
import { statSync } from "node:fs";
import { fail } from "../error.ts";
import { claimPartial } from "../partial-file.ts";
import type { Contents, OnProgress } from "../store.ts";
import { checkDatabase } from "./check.ts";
import { pragma } from "./connection.ts";
import { createPrivate, discard, likeOwner, put, requireFree } from "./files.ts";
import { missingMigrations } from "./migrate.ts";
import { operatorError } from "./reasons.ts";
import { createThread } from "./thread.ts";

/** How often progress is told. */
const PROGRESS_MS = 100;

function count(db: Database, table: "users" | "orders" | "tokens"): number {
  return db.prepare<{ rows: number }, []>(`select count(*) as rows from ${table}`).get()?.rows ?? 0;
}

/**
 * Walks a database that nobody else uses.
 * @returns what is in it
 * @throws {AppError} operator when it is not ours, is of another version, or is damaged
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

/** How large a copy will be: free pages are not copied. */
function expectedBytes(db: Database): number {
  return (pragma(db, "page_count") - pragma(db, "freelist_count")) * pragma(db, "page_size");
}

/** @throws {AppError} operator */
async function copy(
  db: Database,
  draft: string,
  onProgress: OnProgress,
  signal: AbortSignal,
): Promise<void> {
  const expected_bytes = Math.max(1, expectedBytes(db));
  const thread = createThread(db.filename);
  const telling = setInterval(() => {
    const written_bytes = statSync(draft, { throwIfNoEntry: false })?.size ?? 0;
    onProgress(Math.min(1, written_bytes / expected_bytes));
  }, PROGRESS_MS);
  signal.addEventListener("abort", () => thread.close());
  try {
    const failure = await thread.run("vacuum into ?", draft);
    if (failure !== null) fail("operator", failure);
    onProgress(1);
  } catch (error) {
    if (signal.aborted) fail("operator", "it was interrupted");
    throw error;
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
  signal: AbortSignal,
): Promise<Contents> {
  const draft = claimPartial(path);
  try {
    requireFree(path);
    createPrivate(draft);
    await copy(db, draft, onProgress, signal);
    const contents = verify(draft);
    likeOwner(draft, db.filename);
    put(draft, path);
    return contents;
  } catch (error) {
    throw operatorError(`Cannot back up to ${path}`, error);
  } finally {
    discard(draft);
  }
}
