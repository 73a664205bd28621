/** The change feed: notes each change in the transaction that makes it, and reads pages of it. */
import type { Database } from "bun:sqlite";
import { fail } from "../../base/error.ts";
import {
  type Change,
  type ChangeQuery,
  type ChangeStore,
  changeOf,
  changeTypes,
  type Feed,
  LAST_OF_USERS,
  type NewChange,
  requireKept,
  startOf,
} from "../../domain/change.ts";
import { Order, orderStatuses } from "../../domain/order.ts";
import type { JsonRow } from "../../domain/page.ts";
import type { JsonText } from "../../domain/record.ts";
import { User } from "../../domain/user.ts";
import type { ChangeWatch } from "../engine/change-watch.ts";
import type { StoreContext } from "./context.ts";
import { type ListRows, pageOf } from "./lists.ts";
import { prepareText } from "./records.ts";

/** Maximum number of changes deleted per transaction, which takes a few milliseconds. */
const DELETE_BATCH_SIZE = 2000;

/** A change as stored. `created_at` is in milliseconds since the Unix epoch. @see NewChange */
interface StoredChange extends NewChange {
  readonly id: number;
  readonly created_at: number;
}

/** @returns the name at a position, which a CHECK of the table bounds */
function nameAt<Name>(names: readonly Name[], position: number): Name {
  return names[position - 1] as Name;
}

/** @param record the user or order as JSON; by default, the change has none */
function changeJson(change: StoredChange, record?: string): JsonText<Change> {
  const { id, type, record_id, version, status, token, created_at } = change;
  const statusJson = status === null ? "null" : `"${nameAt(orderStatuses, status)}"`;
  return (
    `{"id":${id},"type":"${nameAt(changeTypes, type)}","record_id":${record_id},` +
    `"version":${version},"status":${statusJson},"token":${JSON.stringify(token)},` +
    `"created_at":"${new Date(created_at).toISOString()}"${record === undefined ? "" : `,"record":${record}`}}`
  );
}

export function prepareNoteChange(db: Database, now: () => Date): StoreContext["noteChange"] {
  // Parameters by position, which take half of the time.
  const insert = db.prepare<null, (string | number | null)[]>(`
    insert into changes (type, record_id, version, status, token, created_at)
    values (?, ?, ?, ?, ?, ?)
  `);
  return (changeType, record, author) => {
    const { type, record_id, version, status, token } = changeOf(changeType, record, author);
    insert.run(type, record_id, version, status, token, now().getTime());
  };
}

function prepareRows(db: Database, shownOf: ChangeWatch["shownOf"], isBehind: () => boolean) {
  const state = db.prepare<Feed, []>(`
    select
      (select name from feed) as feed,
      coalesce((select min(id) from changes), 1) as first,
      coalesce((select max(id) from changes), 0) as last
  `);
  const page = db.prepare<StoredChange, { start: number; last: number; limit: number }>(`
    select id, type, record_id, version, status, token, created_at
    from changes
    where id > $start and id <= $last
    order by id
    limit +$limit
  `);
  const recordOf = prepareRecordOf(db);
  function* render(changes: Iterable<StoredChange>, withRecords: boolean): Iterable<JsonRow> {
    for (const change of changes) {
      const record = withRecords ? recordOf(change) : undefined;
      yield { id: change.id, json: changeJson(change, record) };
    }
  }

  return (query: ChangeQuery): ListRows & Feed => {
    const { last: newest, ...kept } = state.get() ?? fail("operator", "the database has no feed");
    // Older ones may have expired.
    const last = Math.max(kept.first - 1, shownOf(newest));
    const feed = { ...kept, last };
    // The archive may have a change, so that a standby shows it, although this server has not learned it.
    requireKept(query, feed, last < newest || isBehind());
    const start = startOf(query, feed);
    const changes = start >= last ? [] : page.iterate({ start, last, limit: query.limit });
    const rows = render(changes, query.include === "record");
    return { ...feed, total: last - feed.first + 1, rows };
  };
}

/** @returns a function that reads the record of a change as it is now, as JSON */
function prepareRecordOf(db: Database): (change: StoredChange) => string {
  const user = prepareText<User>(db, "users", User);
  const order = prepareText<Order>(db, "orders", Order);
  return ({ type, record_id: id }) =>
    (type <= LAST_OF_USERS ? user : order).get(id)?.json ?? "null";
}

/** The id of the first change that stays: the oldest that is not expired among those of a batch, or the next one. */
const FIRST_KEPT = `
  select coalesce(min(id) filter (where created_at >= $before), max(id) + 1)
  from (
    select id, created_at
    from changes
    order by id
    limit ${DELETE_BATCH_SIZE}
  )
`;

/** @param isBehind tells whether another server may have newer changes */
export function createChangeStore(
  { db, reader, writer }: StoreContext,
  { subscribe, shownOf }: Pick<ChangeWatch, "subscribe" | "shownOf">,
  isBehind: () => boolean,
): ChangeStore {
  const rowsOf = prepareRows(db, shownOf, isBehind);
  // `min`, so that SQLite reads a range of ids.
  const deleteBatch = db.prepare<null, { before: number }>(`
    delete from changes
    where id < min((${FIRST_KEPT}), (select max(id) from changes))
  `);

  return {
    list: (query, client, memory) =>
      reader.read("changes", () => pageOf(rowsOf(query), query.limit, () => memory?.room(client))),
    subscribe,
    async deleteExpired(before) {
      const deleteExpired = () => deleteBatch.run({ before: before.getTime() }).changes;
      return (await writer.write("changes", deleteExpired)) === DELETE_BATCH_SIZE;
    },
  };
}
