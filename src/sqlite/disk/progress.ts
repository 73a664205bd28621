/** How far a database has come. It tells an older state, or another history, from a later state. */
import type { Progress, ProgressReader } from "../archive/machine.ts";
import { connect } from "../file/connection.ts";

const selectProgress = `
  select
    coalesce(last.id, 0) as changes,
    last.type || ' ' || last.record_id || ' ' || last.version || ' ' || last.created_at as lastChange,
    (select count(*) from tokens) as tokens,
    (select count(*) from tokens where revoked_at is not null) as revokedTokens
  from (select 1)
  left join changes as last on last.id = (select max(id) from changes where id <= $upTo)
`;

/** @param path of a database that stays open */
export function openProgress(path: string): ProgressReader {
  const db = connect(path);
  // A write waits for it.
  db.run("pragma busy_timeout = 0");

  function readUpTo(upTo: number): Progress | null {
    try {
      return db.query<Progress, { upTo: number }>(selectProgress).get({ upTo });
    } catch {
      return null;
    }
  }

  return {
    read: () => readUpTo(Number.MAX_SAFE_INTEGER),
    lacks({ changes, lastChange, tokens, revokedTokens }) {
      const own = readUpTo(changes);
      // A change that has expired is another one, too: then nobody can tell.
      if (own?.changes !== changes || own.lastChange !== lastChange) return true;
      return own.tokens < tokens || own.revokedTokens < revokedTokens;
    },
    [Symbol.dispose]: () => db.close(true),
  };
}
