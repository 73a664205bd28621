/** Reads pages of lists with their exact totals, each with one statement, which small ones share. */
import { fail, failField } from "../../base/error.ts";
import { Order, type OrderStatus, orderStatuses } from "../../domain/order.ts";
import {
  ALWAYS_FITTING,
  failPageTooLarge,
  type JsonRow,
  joinRecords,
  LARGE_PAGE_BYTES,
  MAX_PAGE_BYTES,
  NO_ROOM,
  type Page,
  type PageMemory,
  type PageQuery,
  rowsOfPage,
  type Sort,
} from "../../domain/page.ts";
import type { RecordTable } from "../../domain/record.ts";
import { User } from "../../domain/user.ts";
import { createBatchQueue, itemAt } from "../engine/batch.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Filters, Session, Value } from "../server/connection.ts";
import { mayConcernOneItem } from "../server/errors.ts";
import { recordJson } from "./columns.ts";
import { totalOf } from "./outbox.ts";

export interface List {
  readonly table: RecordTable;
  readonly ofUser: boolean;
  /**
   * Selects the orders in one status. It is a part of the text of the statement: if it were a parameter, PostgreSQL could
   * not use its statistics, and would search all orders for a rare status.
   */
  readonly status: OrderStatus | null;
}

const sortOrders = {
  id: { direction: "asc", isAfter: ">", last: "max", start: 0 },
  "-id": { direction: "desc", isAfter: "<", last: "min", start: 2 ** 53 },
} as const;

interface Values {
  readonly limit: string;
  readonly after: string;
  readonly isCursor: string;
  readonly user: string;
  readonly offset: string | null;
  readonly maxBytes: number;
}

function totalQuery({ table, ofUser, status }: List, { user }: Values): string {
  if (ofUser) {
    return `select pg_catalog.count(*) as total from orders where user_id = ${user}${status === null ? "" : ` and status = '${status}'`}`;
  }
  if (table === "users") return totalOf("users");
  return totalOf(...(status === null ? orderStatuses : [status]));
}

const json = { users: recordJson(User), orders: recordJson(Order) };

/** The size of the columns that can be long, which are in its JSON as they are stored. */
const longBytes = {
  users: "pg_catalog.octet_length(metadata)",
  orders: "pg_catalog.octet_length(items) + pg_catalog.octet_length(metadata)",
};

/** An offset is counted in an index alone, because PostgreSQL would read each row that it skips. */
function foundRows(list: List, sort: Sort, values: Values): string {
  const { table, ofUser, status } = list;
  const { direction, isAfter } = sortOrders[sort];
  const filters = [
    ...(ofUser ? [`user_id = ${values.user}`] : []),
    ...(status === null ? [] : [`status = '${status}'`]),
  ];
  const where = [`id ${isAfter} ${values.after}`, ...filters].join(" and ");
  const firstOfPage = `
    (select id from ${table} where ${where} order by id ${direction} limit 1 offset ${values.offset})
  `;
  const isOnPage = [`id ${isAfter}= ${firstOfPage}`, ...filters].join(" and ");
  return `
    select *
    from ${table}
    where ${values.offset === null ? where : isOnPage}
    order by id ${direction}
    limit ${values.limit}
  `;
}

/** @param isMeasured whether the page may be too large: if its long columns exceed `maxBytes`, no JSON is built */
function selectPage(list: List, sort: Sort, values: Values, isMeasured: boolean): string {
  const { table } = list;
  const { limit, maxBytes } = values;
  const { direction, last } = sortOrders[sort];
  const found = foundRows(list, sort, { ...values, limit: `${limit} + 1` });
  const ordered = `${isMeasured ? "found" : `(${found}) as found`} order by id ${direction} limit`;
  // Only a query with `after` asks whether the page is the last one. To number the rows would take longer.
  const hasNext = `${values.isCursor} and (select id from ${ordered} 1 offset ${limit}) is not null`;
  const sizes = `select ${longBytes[table]} as bytes from ${ordered} ${limit}`;
  const isBuilt = `(select pg_catalog.sum(bytes) from (${sizes}) as size) <= ${maxBytes}`;
  return `
    ${isMeasured ? `with found as materialized (${found})` : ""}
    select
      (${totalQuery(list, values)})::bigint as total,
      case
        when pg_catalog.count(*) = 0 then ''
        when pg_catalog.octet_length(pg_catalog.string_agg(json, ',')) <= ${maxBytes}
          then pg_catalog.string_agg(json, ',')
      end as records,
      case when ${hasNext} then pg_catalog.${last}(id) end as next
    from (
      select id, ${isMeasured ? `case when ${isBuilt} then ${json[table]} end` : json[table]} as json
      from (select * from ${ordered} ${limit}) as page
    ) as row
  `;
}

/** Its parameter is a JSON array of queries. It returns their `PageRow`s, in order. */
function sharedStatement(list: List, sort: Sort): string {
  const values = {
    limit: `requested."limit"`,
    after: `coalesce(requested.after, ${sortOrders[sort].start})`,
    isCursor: "requested.after is not null",
    user: "requested.user_id",
    offset: null,
    maxBytes: LARGE_PAGE_BYTES,
  };
  return `
    select page.*
    from rows from (
      pg_catalog.json_to_recordset($1::text::json) as ("limit" bigint, after bigint, user_id bigint)
    ) with ordinality as requested ("limit", after, user_id, position)
    cross join lateral (${selectPage(list, sort, values, false)}) as page
    order by requested.position
  `;
}

interface PageRow {
  readonly total: number;
  /** Comma-separated JSON; `null` if they exceed `maxBytes`. */
  readonly records: string | null;
  /** Id of the last record; `null` if it is the last of the list, or none is asked for. */
  readonly next: number | null;
}

const MAX_PAGES = 16;

type ListQuery = PageQuery & { readonly user_id?: number };

export type ReadPage = (query: ListQuery, client?: string, memory?: PageMemory) => Promise<Page>;

/** @returns work that reads a page of at most so many records, as large as the memory allows when it begins */
export function readWithin<Result>(
  memory: PageMemory | undefined,
  client: string | undefined,
  records: number,
  read: (session: Session, maxBytes: number) => Promise<Result>,
): (session: Session) => Promise<Result> {
  return async (session) => {
    const release = memory?.hold(client, records);
    const maxBytes = release === null ? LARGE_PAGE_BYTES : MAX_PAGE_BYTES;
    return await read(session, maxBytes).finally(() => release?.());
  };
}

function prepareShared({ db }: StoreContext, list: List, sort: Sort) {
  const statement = sharedStatement(list, sort);
  const { start } = sortOrders[sort];
  return createBatchQueue<{ query: ListQuery; client: string | undefined }, PageRow>({
    run(requested) {
      const queries = requested.map(({ query: { limit, after, user_id } }) => ({
        limit,
        after: after === 0 ? start : after,
        user_id,
      }));
      const read = (session: Session) => session.all<PageRow>(statement, JSON.stringify(queries));
      return db.run("list", read, { client: requested[0]?.client });
    },
    splitsOn: mayConcernOneItem,
    maxItems: MAX_PAGES,
    // The connections are shared by client.
    maxBatches: Number.POSITIVE_INFINITY,
    clientOf: ({ client }) => client ?? null,
    isOfOneClient: true,
  });
}

export function prepareList(context: StoreContext, list: List): ReadPage {
  const { db, placement } = context;
  const maxOffsetOfAll = list.table === "users" ? null : placement.maxOffset;
  const readSmall = {
    id: prepareShared(context, list, "id"),
    "-id": prepareShared(context, list, "-id"),
  };
  const readLarge = (sort: Sort, ...[query, client, memory]: Parameters<ReadPage>) => {
    const { limit, offset, after, user_id = null } = query;
    const values: Value[] = [
      limit,
      after || sortOrders[sort].start,
      ...(list.ofUser ? [user_id] : []),
      ...(offset > 0 ? [offset] : []),
    ];
    const last = offset > 0 ? `$${values.length}` : null;
    const names = { limit: "$1::bigint", after: "$2::bigint", user: "$3::bigint", offset: last };
    const read = readWithin(memory, client, limit, async (session, maxBytes) => {
      const given = { ...names, isCursor: `${after !== undefined}`, maxBytes };
      // With several servers, the rows are fetched once.
      const isMeasured = limit > ALWAYS_FITTING || maxOffsetOfAll !== null;
      const statement = selectPage(list, sort, given, isMeasured);
      const row = itemAt(await session.all<PageRow>(statement, ...values), 0);
      if (row.records !== null) return row;
      if (maxBytes < MAX_PAGE_BYTES) fail("unavailable", NO_ROOM);
      return failPageTooLarge();
    });
    return db.run("list", read, { client });
  };

  const maxOffset = list.ofUser ? null : maxOffsetOfAll;

  return async (query, client, memory) => {
    const { limit, offset, sort = "id" } = query;
    if (maxOffset !== null && offset > maxOffset) {
      const most = maxOffset.toLocaleString("en");
      const range = { min: 0, max: maxOffset };
      failField("offset", "range", `must be at most ${most} on this database: use after`, range);
    }
    const isSmall = maxOffsetOfAll === null && offset === 0 && limit <= ALWAYS_FITTING;
    let row = isSmall ? await readSmall[sort]({ query, client }) : null;
    // Pages that share a statement are at most as large as a page that is always served.
    if (row === null || row.records === null) row = await readLarge(sort, query, client, memory);
    const { total, records, next } = row;
    return {
      total,
      records: records ?? "",
      nextAfter: next,
      ...(maxOffset !== null && { maxOffset }),
    };
  };
}

/** @param find returns all records that match, in any order */
export function prepareFew(
  { db }: StoreContext,
  find: (session: Session, filters: Filters) => Promise<readonly JsonRow[]>,
) {
  return (filters: Filters, ...[query, client, memory]: Parameters<ReadPage>): Promise<Page> => {
    const read = readWithin(memory, client, query.limit, async (session, maxBytes) => {
      const rows = await find(session, filters);
      const page = joinRecords(rowsOfPage(rows, query), query.limit, () => maxBytes);
      return { total: rows.length, ...page };
    });
    return db.run("list", read, { client });
  };
}
