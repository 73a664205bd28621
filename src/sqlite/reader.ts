import type { Database } from "bun:sqlite";
import { isStorageError, storageError } from "./errors.ts";

/** Reads of one table, which error messages name. */
export interface TableReader {
  /**
   * Runs `work`, which must be synchronous, in the snapshot of this turn. If storage fails, runs it once more
   * in a new snapshot, so `work` must change nothing.
   * @throws {AppError} unavailable if the disk cannot be read
   * @throws {AppError} damaged if the file can be read, but SQLite finds it malformed
   */
  read<Given extends unknown[], Result>(work: (...args: Given) => Result, ...args: Given): Result;
  /** As `read`, but never run again: for work that writes temporary tables. */
  readOnce<Result>(work: () => Result): Result;
  /**
   * As `read`, once for each key: what was read stays true until the database changes.
   * @param key of one kind of work: all callers share them
   * @param work given the key; what it returns is kept, but `null`
   */
  cached<Result>(key: string, work: (key: string) => Result): Result;
}

/**
 * Reads of one turn of the event loop share a snapshot: taking one costs as much as reading a row,
 * and many requests arrive in a turn. It also makes a page and its total agree.
 */
export interface Reader {
  forTable(table: string): TableReader;
  /**
   * Ends the snapshot and clears what was read once. Call it before each write, so that later reads see all
   * that is committed.
   */
  reset(): void;
}

/** How many keys' values are kept at most. */
const MAX_CACHED = 1000;

/** @param isReadable whether the operating system still reads the database file */
export function createReader(db: Database, isReadable: () => boolean): Reader {
  const begin = db.prepare("begin");
  // A dry run of an import writes temporary tables in this transaction.
  const commit = db.prepare("commit");
  const rollback = db.prepare("rollback");
  // Changes whenever another connection, of this process or another, has committed.
  const dataVersion = db.prepare<{ data_version: number }, []>("pragma data_version");
  const cache = new Map<string, unknown>();
  let cache_version = -1;
  let in_snapshot = false;

  /** Never throws: it also runs as a callback of the event loop, where an error would end the process. */
  function endSnapshot(): void {
    if (!in_snapshot) return;
    in_snapshot = false;
    try {
      commit.run();
    } catch {
      endFailedTransaction();
    }
  }

  /** SQLite refuses to commit a transaction in which a read met damage. */
  function endFailedTransaction(): void {
    try {
      rollback.run();
    } catch {
      // After some errors SQLite has ended the transaction itself.
    }
  }

  /** Keeps what was read once only where it is certain that nothing has changed. */
  function validateCache(): void {
    const before = cache_version;
    cache_version = -1;
    try {
      cache_version = dataVersion.get()?.data_version ?? -1;
    } finally {
      if (cache_version === -1 || cache_version !== before) cache.clear();
    }
  }

  /** Makes sure that this turn has its snapshot. */
  function ensureSnapshot(): void {
    if (in_snapshot) return;
    begin.run();
    in_snapshot = true;
    setImmediate(endSnapshot);
    validateCache();
  }

  function reset(): void {
    cache.clear();
    endSnapshot();
  }

  /** @throws the second error, translated; an error that storage did not cause, unchanged */
  function retry<Result>(table: string, error: unknown, work: () => Result): Result {
    if (!isStorageError(error)) throw error;
    reset();
    try {
      ensureSnapshot();
      return work();
    } catch (second) {
      reset();
      throw storageError(second, { verb: "read", table, isReadable });
    }
  }

  function forTable(table: string): TableReader {
    return {
      read(work, ...args) {
        try {
          ensureSnapshot();
          return work(...args);
        } catch (error) {
          return retry(table, error, () => work(...args));
        }
      },
      readOnce<Result>(work: () => Result): Result {
        try {
          ensureSnapshot();
          return work();
        } catch (error) {
          throw storageError(error, { verb: "read", table, isReadable });
        }
      },
      cached<Result>(key: string, work: (key: string) => Result): Result {
        try {
          ensureSnapshot();
          const found = cache.get(key);
          if (found !== undefined) return found as Result;
          const result = work(key);
          // Misses are not cached: unauthenticated clients could fill the cache.
          if (result === null) return result;
          if (cache.size >= MAX_CACHED) cache.clear();
          cache.set(key, result);
          return result;
        } catch (error) {
          return retry(table, error, () => work(key));
        }
      },
    };
  }

  return { forTable, reset };
}
