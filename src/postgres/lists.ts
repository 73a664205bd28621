/** Reads pages of lists with their exact totals, each with one statement, which small ones share. */
import { failField } from "../error.ts";
import { Order, type OrderStatus } from "../order.ts";
import { failPageTooLarge, MAX_PAGE_BYTES, type Page, type PageQuery, type Sort } from "../page.ts";
import type { RecordTable } from "../record.ts";
import { User } from "../user.ts";
import { createBatchQueue } from "./batch.ts";
import { recordJson } from "./columns.ts";
import type { Session, Value } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import { isCausedByStatement } from "./errors.ts";
import { type Total, totalOf, totals } from "./outbox.ts";

/** So many records of any size are less than `MAX_PAGE_BYTES`, so that a page of them need not be measured. */
const MAX_UNMEASURED_ROWS = 50;
/** Maximum number of pages per statement. */
export const MAX_PAGES = 16;

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
export type ReadPage = (query: ListQuery, client?: string) => Promise<Page>;

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

/** The values of a query, as SQL. */
interface Values {
  readonly limit: string;
  /** The id after which the page begins. */
  readonly after: string;
  readonly user: string;
  readonly offset: string;
}

/** @returns a query for the number of matching records */
function totalQuery({ table, ofUser, status }: List, { user }: Values): string {
  if (ofUser) {
    return `select count(*) from orders where user_id = ${user}${status === null ? "" : ` and status = '${status}'`}`;
  }
  if (table === "users") return totalOf("users");
  const parts: readonly Total[] =
    status === null ? totals.filter((total) => total !== "users") : [status];
  return totalOf(...parts);
}

const json = { users: recordJson(User), orders: recordJson(Order) };

/** The size of the columns that can be long, which are in its JSON as they are stored. */
const longBytes = {
  users: "octet_length(metadata)",
  orders: "octet_length(items) + octet_length(metadata)",
};

/**
 * The rows of a page. An offset is counted in an index alone, because PostgreSQL would read each row that it skips.
 */
function foundRows(list: List, { sort, hasOffset }: Shape, values: Values): string {
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
    where ${hasOffset ? isOnPage : where}
    order by id ${direction}
    limit ${values.limit}
  `;
}

/**
 * Selects one `PageRow`. PostgreSQL builds the JSON: in Bun.SQL, one text costs less than the columns of twenty rows. It
 * builds none of a page that is too large by its long columns alone.
 */
function selectPage(list: List, shape: Shape, values: Values): string {
  const { table } = list;
  const { direction, last } = sortOrders[shape.sort];
  const isOnPage = `at <= ${values.limit}`;
  const page = foundRows(list, shape, values);
  const longSum = `(select coalesce(sum(${longBytes[table]}), 0) from (${page}) as measured)`;
  // The record after the page shows whether it is the last one.
  const found = foundRows(list, shape, { ...values, limit: `${values.limit} + 1` });
  return `
    select
      (${totalQuery(list, values)})::bigint as total,
      string_agg(json, ',') filter (where ${isOnPage}) as records,
      case when count(*) > ${values.limit} then ${last}(id) filter (where ${isOnPage}) end as next,
      ${shape.isMeasured ? longSum : "0"}::bigint as long_bytes
    from (
      select id, ${json[table]} as json, row_number() over (order by id ${direction}) as at
      from (${found}) as found
      ${shape.isMeasured ? `where ${longSum} <= ${MAX_PAGE_BYTES}` : ""}
    ) as row
  `;
}

/** Selects how many records of a page that is too large are small enough together. */
function selectFitting(list: List, shape: Shape, values: Values): string {
  const before = `(order by id ${sortOrders[shape.sort].direction})`;
  return `
    select count(*) as fitting
    from (
      select sum(octet_length(json) + 1) over ${before} - 1 as bytes
      from (
        select id, ${json[list.table]} as json
        from (
          select *, sum(${longBytes[list.table]}) over ${before} as long_bytes
          from (${foundRows(list, shape, values)}) as found
        ) as measured
        where long_bytes <= ${MAX_PAGE_BYTES}
      ) as rendered
    ) as sized
    where bytes <= ${MAX_PAGE_BYTES}
  `;
}

/** Parameters: the limit, the id, the user if the list is of one, and the offset if there is one. */
function parametersOf({ ofUser }: List): Values {
  return { limit: "$1::bigint", after: "$2", user: "$3", offset: ofUser ? "$4" : "$3" };
}

/** Its parameter is a JSON array of queries. It returns their `PageRow`s in any order, each with its `position`. */
function sharedStatement(list: List, sort: Sort): string {
  const shape = { sort, hasOffset: false, isMeasured: false };
  const values = {
    limit: `requested."limit"`,
    after: "requested.after",
    user: "requested.user_id",
    offset: "0",
  };
  return `
    select requested.position, page.*
    from rows from (
      json_to_recordset($1::text::json) as ("limit" bigint, after bigint, user_id bigint)
    ) with ordinality as requested ("limit", after, user_id, position)
    cross join lateral (${selectPage(list, shape, values)}) as page
  `;
}

interface PageRow {
  /** From 1; only of a shared statement. */
  readonly position?: number;
  readonly total: number;
  /** Comma-separated JSON; `null` if the page is empty, or too large by its long columns. */
  readonly records: string | null;
  /** Id of the last record; `null` if it is the last of the list. */
  readonly next: number | null;
  /** Bytes of its long columns; 0 if they are not measured. */
  readonly long_bytes: number;
}

interface Requested {
  readonly query: ListQuery;
  readonly client: string | undefined;
}

/** @returns a function that reads small pages. Those that one client requests in one turn share a statement */
function prepareShared({ db }: StoreContext, list: List, sort: Sort) {
  const statement = sharedStatement(list, sort);
  const { start } = sortOrders[sort];
  return createBatchQueue<Requested, PageRow>({
    async run(requested) {
      const queries = requested.map(({ query: { limit, after, user_id } }) => ({
        limit,
        after: after || start,
        user_id,
      }));
      const read = (session: Session) => session.all<PageRow>(statement, JSON.stringify(queries));
      const rows = await db.run("list", read);
      const found = new Map(rows.map((row) => [row.position, row]));
      return queries.map((_, at) => found.get(at + 1) ?? failMissing());
    },
    splitsOn: (error, count) => count > 1 && isCausedByStatement(error),
    maxItems: MAX_PAGES,
    maxBatches: db.shares.list,
    clientOf: ({ client }) => client ?? null,
    isOfOneClient: true,
  });
}

function failMissing(): never {
  throw new Error("the database returned no page");
}

/**
 * @returns a function that reads pages of a list
 * @throws {AppError} by its result: validation_failed if the page exceeds 4 MiB or the offset is too large, unavailable if
 * the database is unreachable or busy
 */
export function prepareList(context: StoreContext, list: List): ReadPage {
  const { db, placement } = context;
  const shared = {
    id: prepareShared(context, list, "id"),
    "-id": prepareShared(context, list, "-id"),
  };
  const statements = new Map<string, string>();
  const parameters = parametersOf(list);

  function statementFor(select: typeof selectPage, shape: Shape): string {
    const key = [select.name, ...Object.values(shape)].join();
    const statement = statements.get(key) ?? select(list, shape, parameters);
    statements.set(key, statement);
    return statement;
  }

  async function readAlone(query: ListQuery, shape: Shape): Promise<PageRow> {
    const { limit, offset, after, user_id = null } = query;
    const values: Value[] = [
      limit,
      after || sortOrders[shape.sort].start,
      ...(list.ofUser ? [user_id] : []),
      ...(offset > 0 ? [offset] : []),
    ];
    const read = <Row>(statement: string) =>
      db.run("list", async (session) => {
        return (await session.first<Row>(statement, ...values)) ?? failMissing();
      });
    const row = await read<PageRow>(statementFor(selectPage, shape));
    const isTooLarge =
      row.long_bytes > MAX_PAGE_BYTES || Buffer.byteLength(row.records ?? "") > MAX_PAGE_BYTES;
    if (!isTooLarge) return row;
    const { fitting } = await read<{ fitting: number }>(statementFor(selectFitting, shape));
    return failPageTooLarge(fitting);
  }

  function requireOffset(offset: number): void {
    const { maxOffset } = placement;
    if (maxOffset === null || list.ofUser || list.table === "users" || offset <= maxOffset) return;
    const most = maxOffset.toLocaleString("en");
    const range = { min: 0, max: maxOffset };
    failField("offset", "range", `must be at most ${most} on this database: use after`, range);
  }

  return async (query, client) => {
    const { limit, offset, after, sort = "id" } = query;
    requireOffset(offset);
    const shape = { sort, hasOffset: offset > 0, isMeasured: limit > MAX_UNMEASURED_ROWS };
    const isSmall = !shape.hasOffset && !shape.isMeasured;
    const { total, records, next } =
      isSmall && placement.sharesPages
        ? await shared[sort]({ query, client })
        : await readAlone(query, shape);
    const { maxOffset } = placement;
    return {
      total,
      records: records ?? "",
      nextAfter: after === undefined ? null : next,
      ...(maxOffset !== null && { maxOffset }),
    };
  };
}
