/** Lists whose ids are counted (see `count-index.ts`): totals, and pages at any offset, cost the same at any size. */
import type { Database } from "bun:sqlite";
import { type JsonRow, maxId, type PageQuery, rowsToRead } from "../../domain/page.ts";
import { type CountedList, createCountIndex, type PageStart, tableOf } from "./count-index.ts";
import type { ListRows } from "./records.ts";

type Status = { readonly status: CountedList };

/** @param columns of a `JsonRow`, the first of which is the id */
export function prepareCountedList(
  db: Database,
  list: CountedList,
  columns: string,
): (query: PageQuery) => ListRows {
  const table = tableOf(list);
  const where = list === table ? "" : "status = +$status and";
  const countIndex = createCountIndex(db, list);
  const ascending = db.prepare<JsonRow, Status & PageStart & { limit: number }>(`
    select ${columns}
    from ${table}
    where ${where} id > $after
    order by id
    limit +$limit offset +$skip
  `);
  const descending = db.prepare<JsonRow, Status & { last: number; limit: number }>(`
    select ${columns}
    from ${table}
    where ${where} id <= $last
    order by id desc
    limit +$limit
  `);
  const idAt = db.prepare<{ id: number }, Status & PageStart>(`
    select id
    from ${table}
    where ${where} id > $after
    order by id
    limit 1 offset +$skip
  `);

  return (query) => {
    const { offset, after, sort } = query;
    const total = countIndex.total();
    const page = { status: list, limit: rowsToRead(query) };
    if (after === undefined && offset >= total) return { total, rows: [] };
    if (sort === "-id") {
      if (offset === 0) return { total, rows: descending.iterate({ ...page, last: maxId(query) }) };
      const first = { status: list, ...countIndex.pageStart(total - 1 - offset) };
      return { total, rows: descending.iterate({ ...page, last: idAt.get(first)?.id ?? 0 }) };
    }
    const start = after === undefined ? countIndex.pageStart(offset) : { after, skip: 0 };
    return { total, rows: ascending.iterate({ ...page, ...start }) };
  };
}
