import type { Database } from "bun:sqlite";

/**
 * Reads of one turn of the event loop share a snapshot: taking one costs as much as reading a row,
 * and many requests arrive in a turn. It also makes a page and its total agree.
 */
export interface Reader {
  /** Runs `work`, which must be synchronous, in the snapshot of this turn. */
  read<Given extends unknown[], Result>(work: (...given: Given) => Result, ...given: Given): Result;
  /**
   * As `read`, once for each key: what was read stays true until the database changes.
   * @param key of one kind of work: all callers share them
   * @param work given the key; what it returns is kept, but `null`
   */
  readOnce<Result>(key: string, work: (key: string) => Result): Result;
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

  /** Keeps what was read once only where it is certain that nothing has changed. */
  function renew(): void {
    const before = known_version;
    known_version = -1;
    try {
      known_version = dataVersion.get()?.data_version ?? -1;
    } finally {
      if (known_version === -1 || known_version !== before) known.clear();
    }
  }

  /** Makes sure that this turn has its snapshot. */
  function enter(): void {
    if (open) return;
    begin.run();
    open = true;
    setImmediate(release);
    renew();
  }

  return {
    read(work, ...given) {
      enter();
      return work(...given);
    },
    readOnce<Result>(key: string, work: (key: string) => Result): Result {
      enter();
      const found = known.get(key);
      if (found !== undefined) return found as Result;
      const result = work(key);
      // Of what is not there strangers could ask without end.
      if (result === null) return result;
      if (known.size >= MAX_KNOWN) known.clear();
      known.set(key, result);
      return result;
    },
    end() {
      known.clear();
      release();
    },
  };
}
