/** Deletes expired changes from the beginning of the feed. */
import { untilDone } from "../until-done.ts";
import type { Database, Session } from "./connection.ts";
import { feedState } from "./numbering.ts";

/** Maximum number of changes that one transaction deletes. */
const DELETE_BATCH_SIZE = 10_000;

/** Parameters: a time in milliseconds, and the maximum number of changes. Numbering waits meanwhile. */
const deleteBatch = `
  with
    state as materialized (${feedState}),
    kept as materialized (
      select least(
        state.last, coalesce(min(old.id) filter (where old.created_at >= $1::bigint), max(old.id) + 1)
      ) as first
      from state
      cross join lateral (
        select id, created_at
        from changes
        where id >= state.first
        order by id
        limit $2::bigint
      ) as old
      group by state.last
    ),
    locked as materialized (
      select ctid as place
      from change_feed
      where xid = (select xid from state where is_current)
        and (select first from kept) > (select first from state)
      for update
    ),
    deleted as (
      delete from changes
      where exists (select from locked)
        and id >= (select first from state)
        and id < (select first from kept)
    ),
    replaced as (
      delete from change_feed
      where ctid = any(array(select place from locked))
    ),
    next as (
      insert into change_feed (name, first, last, last_xid, origin, next_xid, running)
      select name, kept.first, last, last_xid, origin, next_xid, running
      from state
      cross join kept
      where exists (select from locked)
    )
  select (kept.first - state.first)::integer as expired
  from state
  cross join kept
`;

/** Call after all changes were numbered. @see ChangeStore.deleteExpired */
export async function deleteExpired(
  db: Database,
  before: Date,
  signal?: AbortSignal,
): Promise<void> {
  const work = (session: Session) =>
    session.first<{ expired: number }>(deleteBatch, before.getTime(), DELETE_BATCH_SIZE);
  // If a pass of numbering has come between, the next transaction deletes what this one could not.
  await untilDone(async () => ((await db.run("write", work))?.expired ?? 0) === 0, signal);
}
