/** Reads pages of lists with their exact totals, each with one statement, which small ones share. */
import { failField } from "../../base/error.ts";
import { Order, type OrderQuery, type OrderStatus, orderStatuses } from "../../domain/order.ts";
import * as pages from "../../domain/page.ts";
import type { RecordTable } from "../../domain/record.ts";
import { User } from "../../domain/user.ts";
import { createBatchQueue, itemAt } from "../engine/batch.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Filters, Session, Value } from "../server/connection.ts";
import { mayConcernOneItem } from "../server/errors.ts";
import { recordJson } from "./columns.ts";
import { totalIn, totalOf } from "./outbox.ts";

export interface List {
  readonly table: RecordTable;
  readonly ofUser: boolean;
  /**
   * Selects the orders in one status. It is a part of the text of the statement: if it were a parameter, PostgreSQL could
   * not use its statistics, and would search all orders for a rare status. With `some`, a parameter has several.
   */
  readonly status: OrderStatus | "some" | null;
  /** Selects the orders that were created in a period, in `some` statuses. */
  readonly isTimed?: boolean;
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
  readonly statuses: string;
  readonly from?: string;
  readonly to?: string;
  readonly offset: string | null;
  readonly maxBytes: number;
}

function filtersOf({ ofUser, status, isTimed }: List, values: Partial<Values>): string[] {
  const { user, statuses, from, to } = values;
  const inStatus = status === "some" ? `status = any(${statuses})` : `status = '${status}'`;
  // `is true` hides the period from its index: a user has few orders, and a period may have most.
  const isInPeriod = `(created_at >= ${from} and created_at < ${to})${ofUser ? " is true" : ""}`;
  return [
    ...(ofUser ? [`user_id = ${user}`] : []),
    ...(status === null ? [] : [inStatus]),
    ...(isTimed ? [isInPeriod] : []),
  ];
}

function totalQuery(list: List, values: Values): string {
  const { table, ofUser, status, isTimed } = list;
  if (isTimed) return "select pg_catalog.count(*) as total from matching";
  const where = filtersOf(list, values).join(" and ");
  if (ofUser) return `select pg_catalog.count(*) as total from orders where ${where}`;
  if (table === "users") return totalOf("users");
  if (status === "some") return totalIn(values.statuses);
  return totalOf(...(status === null ? orderStatuses : [status]));
}

const json = { users: recordJson(User), orders: recordJson(Order) };

/** The size of the columns that can be long, which are in its JSON as they are stored. */
const longBytes = {
  users: "pg_catalog.octet_length(metadata)",
  orders: "pg_catalog.octet_length(items) + pg_catalog.octet_length(metadata)",
};

/** @returns rows in order. @param start a condition on the id. @param skip how many rows are skipped; `null` for none */
function inOrder(
  list: List,
  sort: pages.Sort,
  values: Values,
  columns: string,
  start: string,
  limit: string,
  skip: string | null = null,
): string {
  const order = `order by id ${sortOrders[sort].direction} limit`;
  const whole = skip === null ? limit : `${limit} offset ${skip}`;
  const read = (filters: readonly string[], end: string) =>
    `select ${columns} from ${list.table} where ${[start, ...filters].join(" and ")} ${order} ${end}`;
  if (list.status !== "some" || list.ofUser) return read(filtersOf(list, values), whole);
  // Each status has an index. PostgreSQL merges them, and does not read those that are not selected.
  const parts = orderStatuses.map((status) => {
    const filters = [`status = '${status}'`, `'${status}' = any(${values.statuses})`];
    return `(${read(filters, skip === null ? limit : `${limit} + ${skip}`)})`;
  });
  return `select ${columns} from (${parts.join(" union all ")}) as part ${order} ${whole}`;
}

/** An offset is counted in an index alone, because PostgreSQL would read each row that it skips. */
function foundRows(list: List, sort: pages.Sort, values: Values): string {
  const { isAfter, direction } = sortOrders[sort];
  const { limit, offset } = values;
  const start = `id ${isAfter} ${values.after}`;
  if (list.isTimed) {
    const ids = `select id from matching where ${start} order by id ${direction} limit ${limit} offset ${offset}`;
    return `select * from orders where id = any(array(${ids}))${list.ofUser ? ` and user_id = ${values.user}` : ""}`;
  }
  if (offset === null) return inOrder(list, sort, values, "*", start, limit);
  const firstOfPage = inOrder(list, sort, values, "id", start, "1", offset);
  return inOrder(list, sort, values, "*", `id ${isAfter}= (${firstOfPage})`, limit);
}

/** @param isMeasured whether the page may be too large: if its long columns exceed `maxBytes`, no JSON is built */
function selectPage(list: List, sort: pages.Sort, values: Values, isMeasured: boolean): string {
  const { table } = list;
  const { limit, maxBytes } = values;
  const { direction, last } = sortOrders[sort];
  const found = foundRows(list, sort, { ...values, limit: `${limit} + 1` });
  const ordered = `${isMeasured ? "found" : `(${found}) as found`} order by id ${direction} limit`;
  // Only a query with `after` asks whether the page is the last one. To number the rows would take longer.
  const hasNext = `${values.isCursor} and (select id from ${ordered} 1 offset ${limit}) is not null`;
  const sizes = `select ${longBytes[table]} as bytes from ${ordered} ${limit}`;
  const isBuilt = `(select pg_catalog.sum(bytes) from (${sizes}) as size) <= ${maxBytes}`;
  // For the total and the page. In one query with the page, PostgreSQL would read all orders by id until its end.
  const ids = `select id from orders where ${filtersOf(list, values).join(" and ")}`;
  const matching = list.isTimed ? `matching as materialized (${ids}),` : "";
  return `
    ${isMeasured ? `with ${matching} found as materialized (${found})` : ""}
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
function sharedStatement(list: List, sort: pages.Sort): string {
  const values = {
    limit: `requested."limit"`,
    after: `coalesce(requested.after, ${sortOrders[sort].start})`,
    isCursor: "requested.after is not null",
    user: "requested.user_id",
    statuses: "requested.status",
    offset: null,
    maxBytes: pages.LARGE_PAGE_BYTES,
  };
  return `
    select page.*
    from rows from (
      pg_catalog.json_to_recordset($1::text::json) as ("limit" bigint, after bigint, user_id bigint, status text[])
    ) with ordinality as requested ("limit", after, user_id, status, position)
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

type ListQuery = pages.PageQuery &
  Pick<OrderQuery, "user_id" | "status" | "created_from" | "created_to">;

export type ReadPage = (
  query: ListQuery,
  client?: string,
  memory?: pages.PageMemory,
) => Promise<pages.Page>;

/** @returns work that reads a page of at most so many records, as large as the memory allows when it begins */
export function readWithin<Result>(
  memory: pages.PageMemory | undefined,
  client: string | undefined,
  records: number,
  read: (session: Session, maxBytes: number) => Promise<Result>,
): (session: Session) => Promise<Result> {
  return async (session) => {
    const release = memory?.hold(client, records);
    const maxBytes = release === null ? pages.LARGE_PAGE_BYTES : pages.MAX_PAGE_BYTES;
    return await read(session, maxBytes).finally(() => release?.());
  };
}

function prepareShared({ db }: StoreContext, list: List, sort: pages.Sort) {
  const statement = sharedStatement(list, sort);
  const { start } = sortOrders[sort];
  return createBatchQueue<{ query: ListQuery; client: string | undefined }, PageRow>({
    run(requested) {
      const queries = requested.map(({ query: { limit, after, user_id, status } }) => ({
        ...{ limit, user_id, status },
        after: after === 0 ? start : after,
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
  const readLarge = (sort: pages.Sort, ...[query, client, memory]: Parameters<ReadPage>) => {
    const { limit, offset, after, user_id = null, created_from = "", created_to = "~" } = query;
    const values: Value[] = [];
    const parameter = (value: Value, type = "bigint") => `$${values.push(value)}::${type}`;
    const isSome = list.status === "some";
    const names = {
      limit: parameter(limit),
      after: parameter(after || sortOrders[sort].start),
      user: list.ofUser ? parameter(user_id) : "",
      statuses: isSome ? parameter(query.status ?? orderStatuses, "text[]") : "",
      ...(list.isTimed && {
        from: parameter(created_from, "text"),
        to: parameter(created_to, "text"),
      }),
      offset: offset > 0 || list.isTimed ? parameter(offset) : null,
    };
    const read = readWithin(memory, client, limit, async (session, maxBytes) => {
      const given = { ...names, isCursor: `${after !== undefined}`, maxBytes };
      // With several servers, the rows are fetched once.
      const isMeasured =
        limit > pages.ALWAYS_FITTING || maxOffsetOfAll !== null || list.isTimed === true;
      const statement = selectPage(list, sort, given, isMeasured);
      const row = itemAt(await session.all<PageRow>(statement, ...values), 0);
      return row.records === null ? pages.failPageTooLarge(maxBytes) : row;
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
    const isShared = maxOffsetOfAll === null && !list.isTimed;
    const isSmall = isShared && offset === 0 && limit <= pages.ALWAYS_FITTING;
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

type Find = (session: Session, filters: Filters) => Promise<readonly pages.JsonRow[]>;

/** @param find returns all records that match, in any order */
export function prepareFew({ db }: StoreContext, find: Find) {
  return (filters: Filters, ...[query, client, memory]: Parameters<ReadPage>) => {
    const read = readWithin(memory, client, query.limit, async (session, maxBytes) => {
      const rows = await find(session, filters);
      const page = pages.joinRecords(pages.rowsOfPage(rows, query), query.limit, () => maxBytes);
      return { total: rows.length, ...page };
    });
    return db.run("list", read, { client });
  };
}
