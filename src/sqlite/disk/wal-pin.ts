/**
 * Holds a read lock on the WAL at all times, so that no process can restart the WAL before its end has been
 * read. A checkpoint copies no further than the lock, and only a WAL that was copied to its end is restarted. Therefore a
 * new lock is taken before the last one is released: at most one restart is possible in between, after the checkpoint
 * of this process, whose frames have been read.
 * @see https://www.sqlite.org/walformat.html#wal_locks
 */
import type { Database } from "bun:sqlite";
import type { WalPin } from "../archive/machine.ts";
import { connect } from "../file/connection.ts";
import { isBusy, withIoErrors } from "../file/errors.ts";

function lockEnd(db: Database): void {
  // Otherwise an I/O error has prevented the end of the last transaction.
  if (!db.inTransaction) db.run("begin");
  // The snapshot begins with the first read.
  withIoErrors(db, () => db.prepare("select 1 from sqlite_schema limit 1").get());
}

/** Copies the WAL to the database. @returns its number of frames; `null` if not all of them were copied */
export function copyWal(db: Database): number | null {
  using statement = db.prepare<{ log: number; checkpointed: number }, []>(
    "pragma wal_checkpoint(passive)",
  );
  const result = statement.get();
  return result !== null && result.log === result.checkpointed ? result.log : null;
}

/** As `configure` does, but without automatic checkpoints. */
export function connectForCheckpoints(path: string): Database {
  const db = connect(path);
  db.run("pragma synchronous = full");
  db.run("pragma fullfsync = on");
  db.run("pragma wal_autocheckpoint = 0");
  return db;
}

export function pinWal(path: string): WalPin {
  using resources = new DisposableStack();
  const open = () => resources.adopt(connectForCheckpoints(path), (db) => db.close(true));
  const holder = open();
  const successor = open();
  lockEnd(holder);
  const opened = resources.move();

  function copy(): number | null {
    if (holder.inTransaction) holder.run("commit");
    try {
      return withIoErrors(holder, () => copyWal(holder));
    } finally {
      lockEnd(holder);
    }
  }

  return {
    checkpoint(read) {
      lockEnd(successor);
      try {
        if (!read()) return false;
        copy();
        return true;
      } finally {
        successor.run("commit");
      }
    },
    complete(read, work) {
      try {
        withIoErrors(successor, () => successor.run("begin immediate"));
      } catch (error) {
        if (isBusy(error)) return false;
        throw error;
      }
      try {
        if (!read() || copy() === null) return false;
        work();
        return true;
      } finally {
        successor.run("rollback");
      }
    },
    [Symbol.dispose]: () => opened.dispose(),
  };
}
