/**
 * Numbers the changes of the outbox: a pass moves the rows that its snapshot shows into `changes`, with consecutive ids.
 * A row that is committed later is still there at the next pass, so no id can be overtaken. One pass runs at a time, in
 * whichever process: the others neither wait for it nor hold up writes.
 */
import type { Feed } from "../change.ts";
import { fail } from "../error.ts";
import type { Database, Session } from "./connection.ts";
import { isReadOnly } from "./errors.ts";
import { createSingleFlight } from "./single-flight.ts";

/** Maximum number of changes that one pass numbers. */
const MAX_NUMBERED = 10_000;
/** How soon to try again after another process was numbering. */
export const RETRY_MS = 5;
/** Maximum number of passes in a row that find another process numbering, each of which takes milliseconds. */
export const MAX_ATTEMPTS = 200;

/**
 * The state of the feed. It is current if its transaction inserted it, in this database on this server and timeline, and
 * if the last change is the one that it knows: otherwise a restore, a failover or a copy may have replaced changes.
 * `xmin` has only the lower 32 bits of the number of a transaction.
 */
export const feedState = `
  select
    state.*, coalesce(newest.id, 0) as newest_id,
    state.inserted_by = state.xid % 4294967296
      and state.last = coalesce(newest.id, 0)
      and state.last_xid % 4294967296 = coalesce(newest.inserted_by, 0)
      and not exists (
        select
        from unnest(state.origin, feed_origin()) as part (stored, present)
        where stored <> present
      ) as is_current
  from (
    select ctid as place, xmin::text::bigint as inserted_by, *
    from change_feed
    order by xid desc
    limit 1
  ) as state
  left join lateral (
    select id, xmin::text::bigint as inserted_by
    from changes
    order by id desc
    limit 1
  ) as newest on true
`;

/**
 * Finds the rows of the outbox, which are those that no pass has deleted. Rows that were deleted can stay for as long as
 * any snapshot, and are not read: they are of transactions that the last pass has seen.
 * @param state a row of `feedState`
 */
function unnumberedIn(state: string): readonly [string, string] {
  return [`change_outbox.xid >= ${state}.next_xid`, `change_outbox.xid = any(${state}.running)`];
}

/**
 * An expression: whether the outbox has such rows. A subquery for each condition, because PostgreSQL reads the whole index
 * for the two of them.
 */
export function hasUnnumbered(state: string): string {
  return unnumberedIn(state)
    .map((condition) => `exists (select from change_outbox where ${condition})`)
    .join(" or ");
}

/**
 * Parameters of a pass: the maximum number of changes, and the name of the feed if a new one begins. It locks the state
 * only if there is something to do. If another pass has replaced the state since, there is no row to lock, and nothing
 * happens. It must be the only statement of its transaction, whose number identifies the state.
 *
 * If the state is not current, all rows are numbered, and those that were restored come first: the numbers of their
 * transactions mean nothing here. Otherwise the transaction of a change has a higher number than that of every change
 * which it could know of. This holds for the versions of one record although PostgreSQL assigns the number before a
 * statement waits for the row: it changes only the version that was read before it, so one that has waited changes
 * nothing, and is repeated in a transaction of its own.
 *
 * The commit is on disk before others see it. Otherwise a client could read ids that a crash assigns again.
 */
const numberPass = `
  with
    state as materialized (${feedState}),
    unnumbered as materialized (
      select place, xid
      from (
        select change_outbox.ctid as place, change_outbox.xid
        from (
          select case when is_current then next_xid else 0 end as next_xid, running
          from state
        ) as state
        join change_outbox on ${unnumberedIn("state").join(" or ")}
        offset 0
      ) as row
      order by xid
      limit (select case when is_current then $1::integer + 1 end from state)
    ),
    locked as materialized (
      select ctid as place
      from change_feed
      where xid = (select xid from state)
        and ((select count(*) from unnumbered) > 0 or not (select is_current from state))
        and case current_setting('synchronous_commit')
          when 'off' then set_config('synchronous_commit', 'local', true) <> ''
          else true
        end
      for update skip locked
    ),
    head as materialized (
      select
        is_current,
        case when is_current then name else $2::text end as name,
        case when is_current then first else coalesce((select min(id) from changes), 1) end as first,
        newest_id as last, last_xid,
        array(
          select coalesce(present, stored)
          from unnest(origin, feed_origin()) with ordinality as part (stored, present, at)
          order by at
        ) as origin
      from state
      where exists (select from locked)
    ),
    moved as (
      delete from change_outbox
      where exists (select from locked)
        and ctid = any(array(
          select place
          from unnumbered
          limit (select case when is_current then $1::integer end from state)
        ))
      returning *, xmin::text::bigint <> xid % 4294967296 as is_restored
    ),
    numbered as (
      insert into changes (id, type, record_id, version, status, token, created_at)
      select
        head.last + row_number() over (
          order by not head.is_current and is_restored desc, xid, record_id, version
        ),
        type, record_id, version, status, token, created_at
      from moved
      cross join head
    ),
    replaced as (
      delete from change_feed
      where ctid = any(array(
        select place from locked
        union all
        select ctid from change_feed where exists (select from head where not is_current)
      ))
    ),
    total as materialized (
      select count(*) as rows
      from moved
    ),
    next as (
      insert into change_feed (name, first, last, last_xid, origin, next_xid, running)
      select
        name, first, last + total.rows,
        -- The newest change stays if there is nothing to number.
        case
          when total.rows > 0 then txid_current()
          else coalesce((select xmin::text::bigint from changes where id = head.last), 0)
        end,
        origin,
        least(
          txid_snapshot_xmax(snapshot),
          case when is_current then (select xid from unnumbered offset $1::integer) end
        ),
        array(select txid_snapshot_xip(snapshot))
      from head
      cross join total
      cross join txid_current_snapshot() as snapshot
      returning name, first, last
    )
  select
    coalesce(next.name, state.name) as feed,
    coalesce(next.first, state.first) as first,
    coalesce(next.last, state.last) as last,
    next.name is null and (not is_current or (select count(*) from unnumbered) > 0) as "isTaken",
    (select count(*) from unnumbered) > $1::integer and is_current as "hasMore"
  from state
  left join next on true
`;

const selectFeed = `
  select name as feed, first, last
  from (${feedState}) as state
`;

export interface Pass extends Feed {
  /** Whether another process was numbering. */
  readonly isTaken: boolean;
  readonly hasMore: boolean;
  /** Set if this server cannot number: it shows what is numbered, under the name that is stored. */
  readonly isReadOnly?: true;
}

/** @throws {AppError} operator */
export function failEmpty(): never {
  fail("operator", "the table change_feed is empty");
}

/** @returns a random name of a feed */
export function newFeedName(): string {
  return crypto.randomUUID().replaceAll("-", "");
}

/** Numbers nothing. @returns the state of the feed as the last pass has left it */
export async function readFeed(db: Database): Promise<Pass> {
  const feed = await db.run("read", (session: Session) => session.first<Feed>(selectFeed));
  return { ...(feed ?? failEmpty()), isTaken: false, hasMore: false, isReadOnly: true };
}

/** Runs one pass. */
export async function numberOnce(db: Database, maxRows = MAX_NUMBERED): Promise<Pass> {
  // Not a write, because metrics count those, and because it is not to wait for writes that wait for locks.
  const pass = await db.run("read", (session: Session) =>
    session.first<Pass>(numberPass, maxRows, newFeedName()),
  );
  return pass ?? failEmpty();
}

/** Runs passes until nothing is left. */
export async function numberInPasses(db: Database): Promise<Feed> {
  for (let attempts = 0; attempts < MAX_ATTEMPTS; ) {
    const { isTaken, hasMore, ...feed } = await numberOnce(db);
    if (!isTaken && !hasMore) return feed;
    if (!isTaken) continue;
    attempts += 1;
    await Bun.sleep(RETRY_MS);
  }
  return fail("unavailable", "the changes are being numbered");
}

/** Numbers changes of the outbox. Concurrent calls share the passes. */
export interface Numbering {
  /** Numbers all changes that were committed before the call. @returns the state of the feed afterwards */
  readonly numberAll: () => Promise<Feed>;
  /** Runs one pass. */
  readonly runPass: () => Promise<Pass>;
}

/** @param collect brings changes to the outbox from elsewhere */
export function createNumbering(db: Database, collect: (db: Database) => Promise<void>): Numbering {
  const shareAll = createSingleFlight<Feed>();
  const sharePass = createSingleFlight<Pass>();

  /** A standby, or a database that is read-only, shows what has been numbered. */
  async function numberOrRead<Result>(number: () => Promise<Result>): Promise<Result | Pass> {
    try {
      await collect(db);
      return await number();
    } catch (error) {
      if (isReadOnly(error)) return readFeed(db);
      throw error;
    }
  }

  return {
    numberAll: () => shareAll("", () => numberOrRead(() => numberInPasses(db))),
    runPass: () => sharePass("", () => numberOrRead(() => numberOnce(db))),
  };
}

/** The numbering of a server that only reads: it shows what others have numbered. */
export function createReadOnlyNumbering(db: Database): Numbering {
  const share = createSingleFlight<Pass>();
  const read = () => share("", () => readFeed(db));
  return { numberAll: read, runPass: read };
}
