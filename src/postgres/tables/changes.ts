import type { ChangePage, ChangeQuery, ChangeStore, StoredChange } from "../../domain/change.ts";
import { changeJson, LAST_OF_USERS, requireKept } from "../../domain/change.ts";
import * as pages from "../../domain/page.ts";
import { itemAt } from "../engine/batch.ts";
import type { StoreContext } from "../engine/context.ts";
import { createSingleFlight } from "../engine/single-flight.ts";
import type { Session } from "../server/connection.ts";
import { watchChanges } from "./change-watch.ts";
import { readWithin } from "./lists.ts";
import { type FeedStatus, feedStatus, lockFeed, type NumberChanges } from "./numbering.ts";
import { findOrders } from "./orders.ts";
import { findUsers } from "./users.ts";

/** So many records of any size are less than a page. */
const recordsPerStatement = (maxBytes: number) => (maxBytes > pages.LARGE_PAGE_BYTES ? 50 : 4);
const DELETE_BATCH_SIZE = 10_000;

/** Not from a place before the first change: deleted rows can stay for as long as any snapshot. */
export const selectPage = `
  select status.*, page.changes
  from (${feedStatus}) as status
  cross join lateral (
    select coalesce(pg_catalog.json_agg(row order by id), '[]') as changes
    from (
      select *
      from changes
      where id > greatest(coalesce($1::bigint, status.first - 1 + $2::bigint), status.first - 1)
      order by id
      limit $3::bigint
    ) as row
  ) as page
`;

/**
 * Parameters: a record, whether it is an order, 1 or -1 for the direction, where the page begins in it, limit and offset. No
 * id is compared as it is: the primary key would lead to the changes of all records.
 */
const selectHistory = `
  with of_record as not materialized (
    select *
    from changes
    where (type > ${LAST_OF_USERS})::integer = $2::integer and record_id = $1::bigint
  )
  select
    (select pg_catalog.count(*) from of_record) as total,
    coalesce(pg_catalog.json_agg(page order by id * $3::bigint), '[]') as changes
  from (
    select *
    from of_record
    where id * $3::bigint > $4::bigint
    order by id * $3::bigint
    limit $5::bigint offset $6::bigint
  ) as page
`;

type FoundPage = FeedStatus & { readonly changes: readonly StoredChange[] };
type FoundHistory = Pick<FoundPage, "changes"> & Pick<ChangePage, "total">;
type PageRow = FeedStatus & Pick<ChangePage, "records">;

/** Parameters: a time in milliseconds, and the maximum number of changes. The feed is locked. */
const deleteBatch = `
  with
    expired as materialized (
      select
        state.xid, state.first,
        least(
          state.last, pg_catalog.min(old.id) filter (where old.created_at >= $1::bigint), pg_catalog.max(old.id) + 1
        ) as next
      from feed_state as state
      cross join lateral (
        select id, created_at
        from changes
        where id >= state.first
        order by id
        limit $2::bigint
      ) as old
      where is_current
      group by state.xid, state.first, state.last
    ),
    deleted as (
      delete from changes
      using expired
      where id >= expired.first and id < expired.next
    ),
    advanced as (
      update change_feed
      set first = expired.next, xid = pg_catalog.txid_current()
      from expired
      where change_feed.xid = expired.xid
    )
  select (next - first)::integer as rows
  from expired
`;

function pageOf(query: ChangeQuery, { feed, first, last, records }: PageRow): ChangePage {
  const state = { feed, first, last };
  requireKept(query, state);
  return { ...state, total: last - first + 1, records, nextAfter: null };
}

export function createChangeStore(
  { db, placement }: StoreContext,
  numberChanges: NumberChanges,
): ChangeStore {
  const share = createSingleFlight<ChangePage>();

  async function addRecords(session: Session, changes: readonly StoredChange[]) {
    const isOfUser = ({ type }: StoredChange) => type <= LAST_OF_USERS;
    const idsOf = (some: readonly StoredChange[]) => [
      ...new Set(some.map(({ record_id }) => record_id)),
    ];
    const users = await findUsers(session, idsOf(changes.filter(isOfUser)));
    const ofOrders = changes.filter((change) => !isOfUser(change));
    const orders = await findOrders(session, placement, idsOf(ofOrders));
    const userTexts = new Map(users.map(({ id, json }) => [id, json]));
    const orderTexts = new Map(orders.map(({ id, json }) => [id, json]));
    return changes.map((change) => {
      const record = (isOfUser(change) ? userTexts : orderTexts).get(change.record_id) ?? "null";
      return { id: change.id, json: changeJson(change, record) };
    });
  }

  function read(query: ChangeQuery, client?: string, memory?: pages.PageMemory): Promise<PageRow> {
    const { after = null, offset, limit } = query;
    const withRecords = query.include === "record";
    const readPage = async (session: Session, maxBytes: number): Promise<PageRow> => {
      const found = await session.all<FoundPage>(selectPage, after, offset, limit);
      const { changes, ...status } = itemAt(found, 0);
      if (!withRecords)
        return { ...status, records: changes.map((change) => changeJson(change)).join(",") };
      const rows: pages.JsonRow[] = [];
      let records = "";
      const step = recordsPerStatement(maxBytes);
      for (let at = 0; at < changes.length; at += step) {
        rows.push(...(await addRecords(session, changes.slice(at, at + step))));
        // It fails as soon as the page is too large.
        ({ records } = pages.joinRecords(rows, limit, () => maxBytes));
      }
      return { ...status, records };
    };
    // Without records, they are small.
    const work = readWithin(memory, client, withRecords ? limit : 0, readPage);
    return db.run("list", work, { transaction: withRecords, client });
  }

  /** Reads a page after earlier changes were numbered. After a large import some are left, which later pages number. */
  async function readNumbered(...asked: Parameters<ChangeStore["list"]>): Promise<ChangePage> {
    const [query] = asked;
    const row = await read(...asked);
    if (row.isCurrent && !row.isBehind) return pageOf(query, row);
    await numberChanges();
    return pageOf(query, await read(...asked));
  }

  return {
    // Clients that wait ask for the same page when there is a change.
    list: (query, client, memory) =>
      share(JSON.stringify([query, client]), () => readNumbered(query, client, memory)),

    async listOf(query, client) {
      const { table, id, offset, limit } = query;
      const place = query.sort === "-id" ? [-1, -1 - pages.maxId(query)] : [1, query.after ?? 0];
      const values = [id, Number(table === "orders"), ...place, pages.rowsToRead(query), offset];
      await numberChanges();
      const find = (session: Session) => session.all<FoundHistory>(selectHistory, ...values);
      const { total, changes } = itemAt(await db.run("list", find, { client }), 0);
      const rows = changes.map((change) => ({ id: change.id, json: changeJson(change) }));
      return { total, ...pages.joinRecords(rows, limit) };
    },

    subscribe: watchChanges(db, numberChanges),

    async deleteExpired(before) {
      if ((await numberChanges()).isBehind) return true;
      const values = [before.getTime(), DELETE_BATCH_SIZE];
      const deleteExpired = async (session: Session) => {
        await lockFeed(session);
        return session.first<{ rows: number }>(deleteBatch, ...values);
      };
      const row = await db.run("background", deleteExpired, { transaction: true });
      return row !== null && row.rows > 0;
    },
  };
}
