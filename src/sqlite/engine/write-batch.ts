import type { Database } from "bun:sqlite";
import { AppError, isDiskError } from "../../base/error.ts";
import { storageError, unavailableError } from "../file/errors.ts";
import type { FileWatch } from "../file/file-watch.ts";

export interface Write {
  readonly table: string;
  /** Synchronous. It may run several times, and only the last run is committed. */
  readonly work: () => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export type WriteBatch = ReturnType<typeof createWriteBatch>;

export function createWriteBatch(db: Database, files: FileWatch) {
  const begin = db.prepare("begin immediate");
  const commit = db.prepare("commit");
  const rollback = db.prepare("rollback");

  function rollBack(): void {
    try {
      if (db.inTransaction) rollback.run();
    } catch {
      // SQLite has ended the transaction itself. If not, the next `begin` fails and says why.
    }
  }

  return {
    /** @throws {SQLiteError} if another process is writing. @throws {AppError} unavailable if the files were moved */
    begin() {
      files?.requireInPlace();
      begin.run();
    },
    /**
     * Runs the writes, and commits them. A write that throws an AppError has changed nothing, so the others go on. Any other
     * error can have left changes, and after SQLite has read a damaged page, it rejects the commit of the transaction: then
     * the last write is rejected, and none is committed.
     * @param takeNext returns `null` at the end of the batch
     * @returns how to settle each write, in their order; if none was committed, the error of the last one
     * @throws if the commit fails. The transaction is rolled back, and no write may be acknowledged.
     */
    run(takeNext: () => Write | null): readonly (() => void)[] | { readonly cause: unknown } {
      const settles: (() => void)[] = [];
      try {
        for (let write = takeNext(); write !== null; write = takeNext()) {
          const { table, work, resolve, reject } = write;
          try {
            const result = work();
            settles.push(() => resolve(result));
          } catch (error) {
            if (!(error instanceof AppError)) {
              const cause = storageError(error, db, "written", table);
              reject(cause);
              return { cause };
            }
            settles.push(() => reject(error));
          }
        }
        commit.run();
        // If the files were moved during the commit, it went to the moved files.
        files?.requireInPlace();
        return settles;
      } finally {
        rollBack();
      }
    },
    /** @returns whether the disk is the reason of a failure, and not e.g. a lock of another program */
    isOfDisk: (cause: unknown) => isDiskError(storageError(cause, db, "written", "")),
    /** @returns the error of a write whose batch could not begin or commit. An unknown cause is reported as unavailable. */
    batchErrorOf(write: Write, cause: unknown): AppError {
      const error = storageError(cause, db, "written", write.table);
      return error instanceof AppError ? error : unavailableError("written", cause);
    },
  };
}
