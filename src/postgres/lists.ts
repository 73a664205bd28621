/** Reads pages of lists with their exact totals, each with one statement. */
import { failField } from "../error.ts";
import { Order, type OrderStatus } from "../order.ts";
import { failPageTooLarge, MAX_PAGE_BYTES, type Page, type PageQuery, type Sort } from "../page.ts";
import type { RecordTable } from "../record.ts";
import { User } from "../user.ts";
import { recordJson } from "./columns.ts";
import type { Session, Value } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import { type Total, totalOf, totals } from "./outbox.ts";

/** So many records of any size are less than `MAX_PAGE_BYTES`, so that a page of them need not be measured. */
const MAX_UNMEASURED_ROWS = 50;

/** What a list has. */
export interface List {
  readonly table: RecordTable;
  /** Whether it has the orders of one user. */
  readonly ofUser: boolean;
  /**
   * Selects the orders in one status. It is a part of the text of the statement: if it were a parameter, PostgreSQL could
   * not use its statistics, and would search all orders for a rare status.
   */
  readonly status: OrderStatus | null;
}

/** A query for a page. It names a user if the list is of one. */
type ListQuery = PageQuery & { readonly user_id?: number };

/** @see RecordStore.list */
export type ReadPage = (query: ListQuery) => Promise<Page>;

/** The SQL that depends on the order of a list. */
const sortOrders = {
  id: { direction: "asc", isAfter: ">", last: "max", start: 0 },
  "-id": { direction: "desc", isAfter: "<", last: "min", start: 2 ** 53 },
} as const;

/** What the text of a statement depends on. */
interface Shape {
  readonly sort: Sort;
  readonly hasOffset: boolean;
  /** Whether the page may exceed `MAX_PAGE_BYTES`. */
  readonly isMeasured: boolean;
}

/** The user of a list of one, and the offset of a page that has one. */
const USER = "$3";
const offsetOf = ({ ofUser }: List) => (ofUser ? "$4" : "$3");

/** @returns a query for the number of matching records */
function totalQuery({ table, ofUser, status }: List): string {
  if (ofUser) {
    return `select count(*) from orders where user_id = ${USER}${status === null ? "" : ` and status = '${status}'`}`;
  }
  if (table === "users") return totalOf("users");
  const parts: readonly Total[] =
    status === null ? totals.filter((total) => total !== "users") : [status];
  return totalOf(...parts);
}

const json = { users: recordJson(User), orders: recordJson(Order) };

/** Bytes of a row that is not read: the columns that can be long, which are stored as they are in its JSON. */
const longBytes = {
  users: "octet_length(metadata)",
  orders: "octet_length(items) + octet_length(metadata)",
};

/**
 * Parameters of the statement: the limit, the id after which the page begins, the user if the list is of one, and the offset
 * if there is one. It returns one `PageRow`.
 *
 * PostgreSQL builds the JSON: in Bun.SQL, one text costs less than the columns of twenty rows. Of a page that may be too
 * large, it builds only the JSON of the rows whose long columns fit. An offset is counted in an index alone, because
 * PostgreSQL would read each row that it skips.
 */
function pageStatement(list: List, { sort, hasOffset, isMeasured }: Shape): string {
  const { table, ofUser, status } = list;
  const { direction, isAfter, last } = sortOrders[sort];
  const filters = [
    ...(ofUser ? [`user_id = ${USER}`] : []),
    ...(status === null ? [] : [`status = '${status}'`]),
  ];
  const where = [`id ${isAfter} $2`, ...filters].join(" and ");
  const firstOfPage = `(select id from ${table} where ${where} order by id ${direction} limit 1 offset ${offsetOf(list)})`;
  const isOnPage = hasOffset ? [`id ${isAfter}= ${firstOfPage}`, ...filters].join(" and ") : where;
  const rendered = isMeasured
    ? `
        select id, json, sum(octet_length(json) + 1) over (order by id ${direction}) - 1 as bytes
        from (
          select id, ${json[table]} as json
          from (
            select *, sum(${longBytes[table]}) over (order by id ${direction}) as long_bytes
            from page
          ) as measured
          where long_bytes <= ${MAX_PAGE_BYTES}
        ) as row
      `
    : `select id, ${json[table]} as json, 0 as bytes from page`;
  return `
    with
      found as materialized (
        select *
        from ${table}
        where ${isOnPage}
        order by id ${direction}
        limit $1::bigint + 1
      ),
      page as (
        select *
        from found
        order by id ${direction}
        limit $1
      ),
      rendered as (${rendered})
    select
      (${totalQuery(list)})::bigint as total,
      (select string_agg(json, ',' order by id ${direction}) from rendered where bytes <= ${MAX_PAGE_BYTES}) as records,
      (select count(*) from rendered where bytes <= ${MAX_PAGE_BYTES}) as fitting,
      (select count(*) from page) as size,
      case when (select count(*) from found) > $1 then (select ${last}(id) from page) end as next
  `;
}

interface PageRow {
  readonly total: number;
  /** Comma-separated JSON; `null` if the page is empty. */
  readonly records: string | null;
  /** Number of records on the page. */
  readonly size: number;
  /** How many of them have at most `MAX_PAGE_BYTES`. */
  readonly fitting: number;
  /** Id of the last record; `null` if it is the last of the list. */
  readonly next: number | null;
}

/**
 * @returns a function that reads pages of a list
 * @throws {AppError} by its result: validation_failed if the page exceeds 4 MiB or the offset is too large, unavailable if
 * the database is unreachable or busy
 */
export function prepareList({ db, placement }: StoreContext, list: List): ReadPage {
  const statements = new Map<string, string>();

  function statementFor(shape: Shape): string {
    const key = Object.values(shape).join();
    const statement = statements.get(key) ?? pageStatement(list, shape);
    statements.set(key, statement);
    return statement;
  }

  return async ({ limit, offset, after, sort = "id", user_id = null }) => {
    const { maxOffset } = placement;
    if (maxOffset !== null && !list.ofUser && list.table === "orders" && offset > maxOffset) {
      const most = maxOffset.toLocaleString("en");
      const range = { min: 0, max: maxOffset };
      failField("offset", "range", `must be at most ${most} on this database: use after`, range);
    }
    const isMeasured = limit > MAX_UNMEASURED_ROWS;
    const statement = statementFor({ sort, hasOffset: offset > 0, isMeasured });
    const values: Value[] = [
      limit,
      after || sortOrders[sort].start,
      ...(list.ofUser ? [user_id] : []),
      ...(offset > 0 ? [offset] : []),
    ];
    const read = (session: Session) => session.first<PageRow>(statement, ...values);
    const row = await db.run("list", read);
    if (row === null) throw new Error("a page has no row");
    const { total, records, size, fitting, next } = row;
    if (fitting < size) failPageTooLarge(fitting);
    return {
      total,
      records: records ?? "",
      nextAfter: after === undefined ? null : next,
      ...(maxOffset !== null && { maxOffset }),
    };
  };
}
