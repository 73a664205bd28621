import { Order, type OrderStatus, orderStatuses } from "../../domain/order.ts";
import { LARGE_PAGE_BYTES, type Sort } from "../../domain/page.ts";
import type { RecordTable } from "../../domain/record.ts";
import { User } from "../../domain/user.ts";
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

export const sortOrders = {
  id: { direction: "asc", isAfter: ">", last: "max", start: 0 },
  "-id": { direction: "desc", isAfter: "<", last: "min", start: 2 ** 53 },
} as const;

export interface Values {
  readonly limit: string;
  readonly after: string;
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

/**
 * Selects one `PageRow`. PostgreSQL builds the JSON: in Bun.SQL, one text costs less than the columns of twenty rows.
 * @param isMeasured whether the page may exceed `MAX_PAGE_BYTES`. If its long columns exceed `maxBytes`, no JSON is built
 */
export function selectPage(list: List, sort: Sort, values: Values, isMeasured: boolean): string {
  const { table } = list;
  const { direction, last } = sortOrders[sort];
  const isOnPage = `at <= ${values.limit}`;
  // The record after the page shows whether it is the last one.
  const found = foundRows(list, sort, { ...values, limit: `${values.limit} + 1` });
  const sizes = `select ${longBytes[table]} as bytes from found order by id ${direction} limit ${values.limit}`;
  const isBuilt = `(select pg_catalog.sum(bytes) from (${sizes}) as size) <= ${values.maxBytes}`;
  return `
    ${isMeasured ? `with found as materialized (${found})` : ""}
    select
      (${totalQuery(list, values)})::bigint as total,
      case
        when pg_catalog.count(*) = 0 then ''
        when pg_catalog.sum(pg_catalog.octet_length(json) + 1) filter (where ${isOnPage}) - 1 <= ${values.maxBytes}
          then pg_catalog.string_agg(json, ',') filter (where ${isOnPage})
      end as records,
      case when pg_catalog.count(*) > ${values.limit} then pg_catalog.${last}(id) filter (where ${isOnPage}) end as next
    from (
      select
        id, pg_catalog.row_number() over (order by id ${direction}) as at,
        ${isMeasured ? `case when ${isBuilt} then ${json[table]} end` : json[table]} as json
      from ${isMeasured ? "found" : `(${found}) as found`}
    ) as row
  `;
}

/** Parameters: the limit, the id, the user if the list is of one, and the offset if there is one. */
export function parametersOf({ ofUser }: List, hasOffset: boolean, maxBytes: number): Values {
  const offset = hasOffset ? `$${ofUser ? 4 : 3}` : null;
  return { limit: "$1::bigint", after: "$2::bigint", user: "$3::bigint", offset, maxBytes };
}

/** Its parameter is a JSON array of queries. It returns their `PageRow`s, in order. */
export function sharedStatement(list: List, sort: Sort): string {
  const values = {
    limit: `requested."limit"`,
    after: "requested.after",
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

export interface PageRow {
  readonly total: number;
  /** Comma-separated JSON; `null` if they exceed `maxBytes`. */
  readonly records: string | null;
  /** Id of the last record; `null` if it is the last of the list. */
  readonly next: number | null;
}
