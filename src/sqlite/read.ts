import type { Database } from "bun:sqlite";

/**
 * Reads of one turn of the event loop share a snapshot: taking one costs as much as reading a row,
 * and many requests arrive in a turn. It also makes a page and its total agree.
 */
export interface Reader {
  /** Runs `work`, which must be synchronous, in the snapshot of this turn. */
  read<Result>(work: () => Result): Result;
  /** As `read`, once a snapshot for each key: what was read in it stays true in it. */
  readOnce<Result>(key: string, work: () => Result): Result;
  /** Lets the snapshot go before its time: what is read next sees all that is committed. */
  end(): void;
}

export function createReader(db: Database): Reader {
  const begin = db.prepare("begin");
  const commit = db.prepare("commit");
  const known = new Map<string, unknown>();
  let open = false;

  function end(): void {
    if (!open) return;
    open = false;
    known.clear();
    commit.run();
  }

  function read<Result>(work: () => Result): Result {
    if (!open) {
      begin.run();
      open = true;
      setImmediate(end);
    }
    return work();
  }

  return {
    read,
    readOnce<Result>(key: string, work: () => Result): Result {
      const found = open ? known.get(key) : undefined;
      if (found !== undefined) return found as Result;
      const result = read(work);
      known.set(key, result);
      return result;
    },
    end,
  };
}
