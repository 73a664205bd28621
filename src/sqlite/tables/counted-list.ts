/** Lists whose ids are counted (see `count-index.ts`): totals, and pages at any offset, cost the same at any size. */
import type { Database } from "bun:sqlite";
import type { OrderStatus } from "../../domain/order.ts";
import { type JsonRow, maxId, type PageQuery, rowsToRead } from "../../domain/page.ts";
import type { RecordTable } from "../../domain/record.ts";
import { type CountedList, createCountIndex, type PageStart } from "./count-index.ts";
import type { ListRows } from "./lists.ts";

interface CountedRows {
  readonly table: RecordTable;
  /** The columns of the rows; the first one is the id. */
  readonly columns: string;
  /** The beginning of a where clause, whose parameters are filters; empty for the whole table. */
  readonly where: string;
}

type Filters = { readonly status?: OrderStatus };

/** Prepares the two statements that read rows by id: ascending after an id, and descending from an id. */
function preparePages(db: Database, { table, columns, where }: CountedRows) {
  return {
    up: db.prepare<JsonRow, Filters & PageStart & { limit: number }>(`
      select ${columns}
      from ${table}
      where ${where} id > $after
      order by id
      limit +$limit offset +$skip
    `),
    down: db.prepare<JsonRow, Filters & { last: number; limit: number }>(`
      select ${columns}
      from ${table}
      where ${where} id <= $last
      order by id desc
      limit +$limit
    `),
  };
}

/** @returns a function that reads a page of a list. @param filters the values of the parameters of `where` */
export function prepareCountedList(
  db: Database,
  counted: CountedRows,
): (list: CountedList, query: PageQuery, filters?: Filters) => ListRows {
  const { table, where } = counted;
  const countIndex = createCountIndex(db);
  const pages = preparePages(db, counted);
  const idAt = db.prepare<{ id: number }, Filters & PageStart>(`
    select id
    from ${table}
    where ${where} id > $after
    order by id
    limit 1 offset +$skip
  `);

  return (list, query, filters = {}) => {
    const { offset, after, sort } = query;
    const total = countIndex.total(list);
    const meta = { total };
    const limit = rowsToRead(query);
    if (after === undefined && offset >= total) return { meta, rows: [] };
    if (sort === "-id") {
      const last =
        after === undefined
          ? (idAt.get({ ...filters, ...countIndex.pageStart(list, total - 1 - offset) })?.id ?? 0)
          : maxId(query);
      return { meta, rows: pages.down.iterate({ ...filters, last, limit }) };
    }
    const start = after === undefined ? countIndex.pageStart(list, offset) : { after, skip: 0 };
    return { meta, rows: pages.up.iterate({ ...filters, ...start, limit }) };
  };
}
