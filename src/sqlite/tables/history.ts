/**
 * The changes of one record. Each names the one before it (`previous`), and the record its newest one (`last_change`), in
 * rows that are written anyway. Versions are consecutive, so they tell how many changes lie between two. A walk from the
 * newest change to the oldest begins at an update whose version is a multiple of 64, which an index has, or at the end.
 */
import type { Database } from "bun:sqlite";
import { changeJson, type HistoryQuery, type StoredChange } from "../../domain/change.ts";
import { maxId, rowsToRead } from "../../domain/page.ts";
import type { RecordTable } from "../../domain/record.ts";
import type { ChangeWatch } from "../engine/change-watch.ts";
import type { ListRows } from "./records.ts";

type Placed = Record<"id" | "place", number>;

export function prepareHistory(db: Database, shownOf: ChangeWatch["shownOf"]) {
  /** A deletion, and the newest change of a record that exists. */
  const prepareEnds = (table: RecordTable) =>
    db.prepare<Placed, { id: number }>(`
      select id, version + 1 as place
      from changes
      where type = 3 and record_id = +$id and '${table}' = 'users'
      union all
      select changes.id, changes.version
      from ${table}
      join changes on changes.id = last_change
      where ${table}.id = +$id
      order by id
    `);
  const ends = { users: prepareEnds("users"), orders: prepareEnds("orders") };
  // Of user.updated or order.updated.
  const nextMark = db.prepare<Placed, Record<string, number>>(`
    select id, version as place
    from changes
    where type = 2 + 3 * $isOrder and record_id = +$id and version % 64 = 0
      and version >= +$place and id > +$after
    order by version
    limit 1
  `);
  // Only to earlier changes: otherwise it might not end in a damaged file.
  const prepareWalk = <Row>(columns: string) =>
    db.prepare<Row, Record<string, number>>(`
      with recursive chain as (
        select *
        from changes
        where id = $from
        union all
        select changes.*
        from chain
        join changes on changes.id = chain.previous
        where changes.id > $after and changes.id < chain.id
        limit +$limit offset +$skip
      )
      select ${columns}
      from chain
    `);
  const walk = prepareWalk<StoredChange>("*");
  const countSteps = prepareWalk<{ steps: number }>("count(*) as steps");

  return (query: HistoryQuery): ListRows => {
    const { table, id, sort = "id", after = 0, offset } = query;
    const stepsTo = (until: number, from: number) =>
      countSteps.get({ from, after: until, limit: -1, skip: 0 })?.steps ?? 0;
    const [last = { id: 0, place: 0 }, ...earlier] = ends[table].all({ id }).reverse();
    // A user was deleted and imported again, with any version.
    const isWalked = earlier.length > 0;
    if (isWalked) last.place = stepsTo(0, last.id);
    const isOrder = Number(table === "orders");
    const markFrom = (place: number, until: number) =>
      (isWalked ? null : nextMark.get({ isOrder, id, place, after: until })) ?? last;
    /** @returns that of the newest change until one; that before the oldest if there is none */
    function placeOf(until: number): number {
      if (until >= last.id) return last.place;
      const mark = markFrom(0, until);
      return mark.place - stepsTo(until, mark.id);
    }
    const shown = shownOf(Number.MAX_SAFE_INTEGER);
    const [oldest, limit, isAscending] = [placeOf(0), rowsToRead(query), sort === "id"];
    const end = placeOf(isAscending ? shown : Math.min(shown, maxId(query)));
    const start = after === 0 ? oldest : placeOf(after);
    const low = isAscending ? start + offset : Math.max(end - offset - limit, oldest);
    const high = isAscending ? Math.min(low + limit, end) : end - offset;
    const { id: from, place } = markFrom(high, 0);
    const page = { from, after: 0, limit: high - low, skip: place - high };
    const changes = high > low ? walk.all(page) : [];
    if (isAscending) changes.reverse();
    return {
      total: placeOf(shown) - oldest,
      rows: changes.map((change) => ({ id: change.id, json: changeJson(change) })),
    };
  };
}
