import type { Database } from "bun:sqlite";
import { fail } from "../../base/error.ts";
import type { ChangeQuery, ChangeStore, Feed, StoredChange } from "../../domain/change.ts";
import { changeJson, changeOf, LAST_OF_USERS, requireKept, startOf } from "../../domain/change.ts";
import { Order } from "../../domain/order.ts";
import type { JsonRow } from "../../domain/page.ts";
import { User } from "../../domain/user.ts";
import type { ChangeWatch } from "../engine/change-watch.ts";
import { prepareHistory } from "./history.ts";
import { createList, type ListRows, prepareText, type StoreContext } from "./records.ts";

/** Maximum number of changes deleted per transaction, which takes a few milliseconds. */
const DELETE_BATCH_SIZE = 2000;

/** The id of the next change, for the `last_change` of a record that is inserted before it in the same transaction. */
export const NEXT_CHANGE = "(select coalesce(max(id), 0) + 1 from changes)";

export function prepareNoteChange(db: Database, now: () => Date): StoreContext["noteChange"] {
  const insert = db.prepare<null, (string | number | null)[]>(`
    insert into changes (type, record_id, version, status, token, created_at, fields, previous)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, case ?1
      when 1 then (select max(id) from changes where type = 3 and record_id = +?2)
      when 2 then (select last_change from users where id = ?2)
      when 3 then (select last_change from users where id = ?2)
      when 5 then (select last_change from orders where id = ?2)
    end)
  `);
  return (...change) => {
    const { type, record_id, version, status, token, fields } = changeOf(...change);
    const values = [type, record_id, version, status, token, now().getTime(), fields];
    return Number(insert.run(...values).lastInsertRowid);
  };
}

const columns = "id, type, record_id, version, status, token, created_at, fields";

function prepareRows(db: Database, shownOf: ChangeWatch["shownOf"], isBehind: () => boolean) {
  const state = db.prepare<Feed, []>(`
    select
      (select name from feed) as feed,
      coalesce((select min(id) from changes), 1) as first,
      coalesce((select max(id) from changes), 0) as last
  `);
  const page = db.prepare<StoredChange, { start: number; last: number; limit: number }>(`
    select ${columns}
    from changes
    where id > $start and id <= $last
    order by id
    limit +$limit
  `);
  const user = prepareText<User>(db, "users", User);
  const order = prepareText<Order>(db, "orders", Order);
  function* render(changes: Iterable<StoredChange>, withRecords: boolean): Iterable<JsonRow> {
    for (const change of changes) {
      const { id, type, record_id } = change;
      const text = withRecords ? (type <= LAST_OF_USERS ? user : order).get(record_id) : null;
      // The record as it is now.
      const record = withRecords ? (text?.json ?? "null") : undefined;
      yield { id, json: changeJson(change, record) };
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

/** @param isBehind tells whether another server may have newer changes */
export function createChangeStore(
  { db, reader, writer }: StoreContext,
  { subscribe, shownOf }: Pick<ChangeWatch, "subscribe" | "shownOf">,
  isBehind: () => boolean,
): ChangeStore {
  // Up to the oldest that is not expired among those of a batch. `min`, so that SQLite reads a range of ids.
  const deleteBatch = db.prepare<null, { before: number }>(`
    delete from changes
    where id < min(
      (
        select coalesce(min(id) filter (where created_at >= $before), max(id) + 1)
        from (
          select id, created_at
          from changes
          order by id
          limit ${DELETE_BATCH_SIZE}
        )
      ),
      (select max(id) from changes)
    )
  `);

  return {
    list: createList(reader, "changes", prepareRows(db, shownOf, isBehind)),
    listOf: createList(reader, "changes", prepareHistory(db, shownOf)),
    subscribe,
    async deleteExpired(before) {
      const deleteExpired = () => deleteBatch.run({ before: before.getTime() }).changes;
      return (await writer.write("changes", deleteExpired)) === DELETE_BATCH_SIZE;
    },
  };
}
