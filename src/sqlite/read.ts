import type { Database } from "bun:sqlite";

/**
 * Reads of one turn of the event loop share a snapshot: taking one costs as much as reading a row,
 * and many requests arrive in a turn. It also makes a page and its total agree.
 */
export interface Reader {
  /** Runs `work`, which must be synchronous, in the snapshot of this turn. */
  read<Result>(work: () => Result): Result;
  /** As `read`, once for each key: what was read stays true until the database changes. */
  readOnce<Result>(key: string, work: () => Result): Result;
  /**
   * Lets the snapshot go, and all that was read once: to be called before each write, so that what is
   * read next sees all that is committed.
   */
  end(): void;
}

/** How many keys' values are kept at most. */
const MAX_KNOWN = 1000;

export function createReader(db: Database): Reader {
  const begin = db.prepare("begin");
  const commit = db.prepare("commit");
  // Changes whenever another connection, of this process or another, has committed.
  const dataVersion = db.prepare<{ data_version: number }, []>("pragma data_version");
  const known = new Map<string, unknown>();
  let known_version = -1;
  let open = false;

  function release(): void {
    if (!open) return;
    open = false;
    commit.run();
  }

  function read<Result>(work: () => Result): Result {
    if (!open) {
      begin.run();
      open = true;
      setImmediate(release);
      const version = dataVersion.get()?.data_version ?? -1;
      if (version !== known_version) known.clear();
      known_version = version;
    }
    return work();
  }

  return {
    read,
    readOnce<Result>(key: string, work: () => Result): Result {
      return read(() => {
        const found = known.get(key);
        if (found !== undefined) return found as Result;
        const result = work();
        if (known.size >= MAX_KNOWN) known.clear();
        known.set(key, result);
        return result;
      });
    },
    end() {
      known.clear();
      release();
    },
  };
}
