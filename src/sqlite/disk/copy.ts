/**
 * The copy of a database that a standby keeps, while others read it. Parts of the WAL are appended to its own WAL. Then the
 * index of the WAL is made invalid, so that the next connection recovers the WAL, and verifies its checksums.
 * @see https://www.sqlite.org/walformat.html#recovery
 */
import { fail, messageOf } from "../../base/error.ts";
import { type Copy, isSamePosition, type WalPosition } from "../archive/machine.ts";
import { pragma } from "../file/connection.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import {
  committedBytes,
  FRAME_HEADER_BYTES,
  INDEX_HEADER_BYTES,
  readWalState,
} from "../file/wal-index.ts";
import { connectForCheckpoints } from "./wal-pin.ts";
import { type WrittenWal, writeFully, writePart } from "./wal-writer.ts";

const NO_HEADER = Buffer.alloc(INDEX_HEADER_BYTES);
/** A connection that recovers the WAL at the same time can write the index as it was before. */
const MAX_RECOVERIES = 10;

/**
 * @param path of an open database, to which nobody else writes
 * @param files of it, which can be written
 * @param start where the last segment in it ends; `null` if there is none
 */
export function openCopy(
  path: string,
  { wal, index }: FileDescriptors,
  start: WalPosition | null,
): Copy {
  const db = connectForCheckpoints(path);
  // Of readers, as long as this thread may wait. The next attempt comes soon.
  db.run("pragma busy_timeout = 1000");
  const read = db.prepare("select 1 from sqlite_schema limit 1");
  read.get();
  const opened = readWalState(index);
  let end = start;
  /** Whether the WAL has everything from its beginning to the end. */
  let isWhole = start !== null && opened.salt === start.salt;
  const written: WrittenWal = {
    descriptor: wal,
    frameBytes: FRAME_HEADER_BYTES + pragma(db, "page_size"),
    committed: committedBytes(opened),
  };

  return {
    isNext: ({ previous }) => end === null || isSamePosition(previous, end),
    canAppend: ({ salt, offset }) =>
      offset === 0 || (isWhole && salt === end?.salt && offset === end.offset),
    append({ offset, end: next }, bytes) {
      writePart(written, bytes, offset);
      isWhole = true;
      end = next;
    },
    show() {
      for (let attempt = 0; written.committed > 0; attempt += 1) {
        writeFully(index, NO_HEADER, 0);
        read.get();
        const state = readWalState(index);
        if (state.salt === end?.salt && committedBytes(state) === written.committed) return;
        if (attempt === MAX_RECOVERIES)
          fail("operator", "the archive is damaged: SQLite rejects a part of the WAL");
      }
    },
    truncateWal() {
      using statement = db.prepare<{ busy: number }, []>("pragma wal_checkpoint(truncate)");
      try {
        if (statement.get()?.busy !== 0) return "another process reads an older state of the copy";
      } catch (error) {
        return messageOf(error);
      }
      written.committed = 0;
      isWhole = false;
      return null;
    },
    [Symbol.dispose]: () => db.close(true),
  };
}
