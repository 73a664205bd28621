/** The change feed: records each change in the transaction that makes it, and reads pages of it. */

import type { Database } from "bun:sqlite";
import { deleteInBatches } from "../../base/delete-in-batches.ts";
import { fail } from "../../base/error.ts";
import {
  type ChangeQuery,
  type ChangeStore,
  changeTypes,
  type Feed,
  LAST_OF_USERS,
  requireKept,
  startOf,
} from "../../domain/change.ts";
import { Order, orderStatuses } from "../../domain/order.ts";
import { User } from "../../domain/user.ts";
import { concatenated } from "../file/connection.ts";
import { recordJson } from "./columns.ts";
import type { StoreContext } from "./context.ts";
import type { ReadRows } from "./lists.ts";

/** Maximum number of changes deleted per transaction, which takes a few milliseconds. */
const DELETE_BATCH_SIZE = 2000;

/** @returns an expression for the name whose position is in a column */
function nameOf(column: string, names: readonly string[]): string {
  const cases = names.map((name, at) => `when ${at + 1} then '${name}'`);
  return `case ${column} ${cases.join(" ")} end`;
}

/** The parts of a change as JSON, without the closing brace. */
const json = [
  `'{"id":'`,
  "changes.id",
  `',"type":"'`,
  nameOf("changes.type", changeTypes),
  `'","record_id":'`,
  "changes.record_id",
  `',"version":'`,
  "changes.version",
  `',"status":'`,
  `json_quote(${nameOf("changes.status", orderStatuses)})`,
  `',"token":'`,
  "json_quote(changes.token)",
  `',"created_at":"'`,
  "strftime('%Y-%m-%dT%H:%M:%fZ', changes.created_at / 1000.0, 'unixepoch')",
  `'"'`,
];

/** @returns an expression that reads the user or order of a change */
function ofRecord(ofUser: string, ofOrder: string): string {
  return `
    case when changes.type <= ${LAST_OF_USERS}
      then (select ${ofUser} from users where users.id = changes.record_id)
      else (select ${ofOrder} from orders where orders.id = changes.record_id)
    end
  `;
}

/** @returns adds a change to the feed */
export function createChangeRecorder(db: Database, now: () => Date): StoreContext["recordChange"] {
  // Parameters by position, which take half of the time.
  const insert = db.prepare<null, (string | number | null)[]>(`
    insert into changes (type, record_id, version, status, token, created_at)
    values (?, ?, ?, ?, ?, ?)
  `);
  return ({ type, record_id, version, status, token }) =>
    insert.run(type, record_id, version, status, token, now().getTime());
}

type ReadChanges<Row> = ReadRows<ChangeQuery, Row, Feed & { readonly total: number }>;

function prepareRows<Row>(db: Database, columns: string): ReadChanges<Row> {
  const state = db.prepare<Feed, []>(`
    select
      (select name from feed) as feed,
      coalesce((select min(id) from changes), 1) as first,
      coalesce((select max(id) from changes), 0) as last
  `);
  const page = db.prepare<Row, { start: number; limit: number }>(`
    select ${columns}
    from changes
    where id > $start
    order by id
    limit +$limit
  `);
  return (query) => {
    const feed = state.get() ?? fail("operator", "the database has no feed");
    requireKept(query, feed);
    const start = startOf(query, feed);
    const rows = start >= feed.last ? [] : page.iterate({ start, limit: query.limit });
    return { meta: { ...feed, total: feed.last - feed.first + 1 }, rows };
  };
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

export function createChangeStore(
  { db, lists, writer }: StoreContext,
  { subscribe }: Pick<ChangeStore, "subscribe">,
): ChangeStore {
  const record = ofRecord(concatenated(db, recordJson(User)), concatenated(db, recordJson(Order)));
  const table = { table: "changes", prepareRows };
  const pages = {
    plain: lists.prepare({ ...table, json: [...json, "'}'"] }),
    record: lists.prepare({
      ...table,
      json: [...json, `',"record":'`, `coalesce(${record}, 'null')`, "'}'"],
    }),
  };
  // `min`, so that SQLite reads a range of ids.
  const deleteBatch = db.prepare<null, { before: number }>(`
    delete from changes
    where id < min((${FIRST_KEPT}), (select max(id) from changes))
  `);

  return {
    list: (query) => pages[query.include ?? "plain"](query),
    subscribe,
    async deleteExpired(before, signal) {
      const deleteExpired = () => deleteBatch.run({ before: before.getTime() }).changes;
      await deleteInBatches(
        async () => (await writer.write("changes", deleteExpired)) < DELETE_BATCH_SIZE,
        signal,
      );
    },
  };
}
