import type { Database } from "bun:sqlite";

/**
 * Reads of one turn of the event loop share a snapshot: taking one costs as much as reading a row,
 * and many requests arrive in a turn. It also makes a page and its total agree.
 */
export interface Reader {
  /** Runs `work`, which must be synchronous, in the snapshot of this turn. */
  read<Result>(work: () => Result): Result;
  /** Lets the snapshot go before its time: what is read next sees all that is committed. */
  end(): void;
}

export function createReader(db: Database): Reader {
  const begin = db.prepare("begin");
  const commit = db.prepare("commit");
  let open = false;

  function end(): void {
    if (!open) return;
    open = false;
    commit.run();
  }

  return {
    read(work) {
      if (!open) {
        begin.run();
        open = true;
        setImmediate(end);
      }
      return work();
    },
    end,
  };
}
