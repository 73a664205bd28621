import type { Database } from "bun:sqlite";
import { storageError } from "../file/errors.ts";

export type Reader = ReturnType<typeof createReader>;

/** Maximum number of cached results. */
const MAX_CACHED = 1000;

/** Results that are kept until the database changes. */
function createCache(db: Database) {
  // Changes when another connection commits, in this process or in another one.
  const dataVersion = db.prepare<{ data_version: number }, []>("pragma data_version");
  const results = new Map<string, unknown>();
  let version = -1;

  return {
    clear: () => results.clear(),
    /** Call it in each new snapshot. Clears the cache unless it is certain that no other connection has committed. */
    validate(): void {
      const before = version;
      version = -1;
      try {
        version = dataVersion.get()?.data_version ?? -1;
      } finally {
        if (version === -1 || version !== before) results.clear();
      }
    },
    read<Result>(key: string, work: (key: string) => Result): Result {
      const found = results.get(key);
      if (found !== undefined) return found as Result;
      const result = work(key);
      // Misses are not cached: unauthenticated clients could fill the cache.
      if (result === null) return result;
      if (results.size >= MAX_CACHED) results.clear();
      results.set(key, result);
      return result;
    },
  };
}

/**
 * All reads in one turn of the event loop share a snapshot. Taking a snapshot costs as much as reading a row, and
 * many requests arrive in one turn. The snapshot also keeps a page consistent with its total.
 * @param requireUnchanged see `DatabaseFile`: called after each read, whatever it returns or throws
 */
export function createReader(db: Database, requireUnchanged = () => {}) {
  const begin = db.prepare("begin");
  // Not a commit: SQLite rejects that of a transaction in which a read has met damage.
  const rollback = db.prepare("rollback");
  const cache = createCache(db);
  let inSnapshot = false;

  /** Never throws: it also runs as a callback of the event loop, where an error would end the process. */
  function endSnapshot(): void {
    if (!inSnapshot) return;
    inSnapshot = false;
    try {
      rollback.run();
    } catch {
      // After some errors SQLite has ended the transaction itself.
    }
  }

  /** Takes a snapshot if this turn has none. */
  function ensureSnapshot(): void {
    if (inSnapshot) return;
    begin.run();
    inSnapshot = true;
    setImmediate(endSnapshot);
    cache.validate();
  }

  /**
   * Ends the snapshot and clears the cache. Call it before each write, so that later reads see all committed changes.
   */
  function reset(): void {
    cache.clear();
    endSnapshot();
  }

  /**
   * Runs `work` in the snapshot of the current turn. It must be synchronous, and may write temporary tables only.
   * @param table the table that is read, for error messages
   * @throws {AppError} unavailable if the disk cannot be read
   * @throws {AppError} damaged if the disk can be read, but SQLite finds the file malformed
   */
  function read<Result>(table: string, work: () => Result): Result {
    try {
      ensureSnapshot();
      return work();
    } catch (error) {
      const described = storageError(error, db, "read", table);
      // SQLite may have ended the transaction.
      if (described !== error) reset();
      throw described;
    } finally {
      requireUnchanged();
    }
  }

  return {
    read,
    /**
     * Like `read`, but caches the result under the key until the database changes.
     * @param key must be unique across all callers, which share the cache
     * @param work receives the key. A result of `null` is not cached.
     */
    cached: <Result>(table: string, key: string, work: (key: string) => Result) =>
      read(table, () => cache.read(key, work)),
    reset,
  };
}
