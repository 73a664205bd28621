/** Runs the writes of a batch in one transaction. A write that fails does not affect the others. */
import type { Database } from "bun:sqlite";
import { AppError } from "../../base/error.ts";
import { isStorageError, storageError, unavailableError } from "../file/errors.ts";
import type { FileWatch } from "../file/file-watch.ts";

export interface Write {
  /** The table that is written, for error messages. */
  readonly table: string;
  /** Synchronous. It may run several times, and only the last run is committed. */
  readonly work: () => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export type Settle = () => void;

/** @returns the write at an index of a batch, which may begin only now; `null` at its end */
export type WriteAt = (index: number) => Write | null;

export type WriteBatch = ReturnType<typeof createWriteBatch>;

/** Outcome of running the writes once: how to settle each write, or the write that failed. */
type Attempt =
  | { readonly settles: readonly Settle[] }
  | { readonly failed: Write; readonly isStorage: boolean };

export function createWriteBatch(db: Database, files: FileWatch) {
  const begin = db.prepare("begin immediate");
  const commit = db.prepare("commit");
  const rollback = db.prepare("rollback");
  const savepoint = db.prepare("savepoint one");
  const release = db.prepare("release one");
  const undo = db.prepare("rollback to one");

  /** @returns the error for a write that was not committed. An unknown cause is also reported as unavailable. */
  function rejectionOf({ table }: Write, cause: unknown): AppError {
    const { isReadable } = files;
    const error = storageError(cause, { db, verb: "written", table, isReadable });
    return error instanceof AppError ? error : unavailableError("written", cause);
  }

  function rollBackQuietly(): void {
    try {
      if (db.inTransaction) rollback.run();
    } catch {
      // SQLite has ended the transaction itself. If not, the next `begin` fails and says why.
    }
  }

  function restart(): void {
    if (db.inTransaction) rollback.run();
    begin.run();
  }

  /**
   * Almost all writes succeed, and a savepoint costs as much as a write. Without savepoints, any failure ends the
   * attempt. With them, only a failure of storage does.
   */
  function runAll(writeAt: WriteAt, inSavepoints: boolean, excluded: readonly Write[]): Attempt {
    const settles: Settle[] = [];
    for (let at = 0, write = writeAt(at); write !== null; at += 1, write = writeAt(at)) {
      if (excluded.includes(write)) continue;
      if (inSavepoints) savepoint.run();
      try {
        const result = write.work();
        if (inSavepoints) release.run();
        settles.push(() => write.resolve(result));
      } catch (error) {
        // A full disk ends the whole transaction, and the savepoint with it.
        if (inSavepoints && !db.inTransaction) throw error;
        const isStorage = isStorageError(error);
        if (isStorage || !inSavepoints) return { failed: write, isStorage };
        undo.run();
        release.run();
        settles.push(() => write.reject(error));
      }
    }
    return { settles };
  }

  function runAlone(write: Write): Settle {
    try {
      begin.run();
      const result = write.work();
      commit.run();
      files.requireInPlace();
      return () => write.resolve(result);
    } catch (error) {
      rollBackQuietly();
      const rejection = isStorageError(error) ? rejectionOf(write, error) : error;
      return () => write.reject(rejection);
    }
  }

  /**
   * After SQLite has read a damaged page, it rejects all further writes of the transaction, and the commit. Therefore
   * the others run again without the write that failed. Finally, that write gets a separate transaction, because
   * SQLite reports a transient read error as damage.
   */
  function commitAll(writeAt: WriteAt): readonly Settle[] {
    const suspects: Write[] = [];
    for (;;) {
      let attempt = runAll(writeAt, false, suspects);
      if ("failed" in attempt && !attempt.isStorage) {
        restart();
        attempt = runAll(writeAt, true, suspects);
      }
      if ("settles" in attempt) {
        commit.run();
        // If the files were moved during the commit, it went to the moved files.
        files.requireInPlace();
        return [...attempt.settles, ...suspects.map(runAlone)];
      }
      suspects.push(attempt.failed);
      restart();
    }
  }

  return {
    /**
     * Begins the transaction.
     * @throws {SQLiteError} SQLITE_BUSY if another process is writing
     * @throws {AppError} unavailable if the files were moved
     */
    begin() {
      files.requireInPlace();
      begin.run();
    },
    /**
     * Runs the writes and commits those that succeed.
     * @param writeAt called with one index after the other, and again from 0 when the writes run again
     * @returns how to settle each write
     * @throws if the commit fails. The transaction is rolled back, and no write may be acknowledged.
     */
    commit(writeAt: WriteAt): readonly Settle[] {
      try {
        return commitAll(writeAt);
      } catch (error) {
        rollBackQuietly();
        throw error;
      }
    },
    rejectionOf,
  };
}
