import type { Database } from "bun:sqlite";
import { storageError } from "../file/errors.ts";

export type Reader = ReturnType<typeof createReader>;

/** Maximum number of cached results. Without them, a look-up of the token takes a fifth of the CPU time of a GET. */
const MAX_CACHED = 1000;

/**
 * All reads in one turn of the event loop share a snapshot. Taking a snapshot costs as much as reading a row, and
 * many requests arrive in one turn. The snapshot also keeps a page consistent with its total.
 * @param requireUnchanged see `DatabaseFile`: called after each read, whatever it returns or throws
 */
export function createReader(db: Database, requireUnchanged = () => {}) {
  const begin = db.prepare("begin");
  // Not a commit: SQLite rejects that of a transaction in which a read has met damage.
  const rollback = db.prepare("rollback");
  // Changes when another connection commits, in this process or in another one.
  const dataVersion = db.prepare<{ data_version: number }, []>("pragma data_version");
  let version = -1;
  const results = new Map<string, unknown>();
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

  /** Takes a snapshot if this turn has none. If it throws, call `reset`. */
  function ensureSnapshot(): void {
    if (inSnapshot) return;
    begin.run();
    inSnapshot = true;
    setImmediate(endSnapshot);
    const before = version;
    version = dataVersion.get()?.data_version ?? -1;
    if (version !== before) results.clear();
  }

  /** Call it before each write, so that later reads see all committed changes. */
  function reset(): void {
    results.clear();
    endSnapshot();
  }

  /** Runs synchronous `work` in the snapshot of this turn. It may write temporary tables only. @throws as {@link storageError} */
  function read<Result>(table: string, work: () => Result): Result {
    try {
      ensureSnapshot();
      return work();
    } catch (error) {
      // SQLite may have ended the transaction, and the results may be those of an older state.
      reset();
      throw storageError(error, db, "read", table);
    } finally {
      requireUnchanged();
    }
  }

  return {
    read,
    /** Caches what is not `null` until the database changes. @param key must be unique across all callers */
    cached: <Result>(table: string, key: string, work: (key: string) => Result) =>
      read(table, () => {
        const found = results.get(key);
        if (found !== undefined) return found as Result;
        const result = work(key);
        // Misses are not cached: unauthenticated clients could fill the cache.
        if (result === null) return result;
        if (results.size >= MAX_CACHED) results.clear();
        results.set(key, result);
        return result;
      }),
    reset,
  };
}
