/** Reads pages of lists with their exact totals, each with one statement, which small ones share. */
import { fail, failField } from "../../base/error.ts";
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
import { createBatchQueue, itemAt } from "../engine/batch.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session, Value } from "../server/connection.ts";
import { mayConcernOneItem } from "../server/errors.ts";
import type { Filters } from "../server/filters.ts";
import {
  type List,
  type PageRow,
  parametersOf,
  selectPage,
  sharedStatement,
  sortOrders,
} from "./list-statements.ts";

/** Maximum number of pages per statement. */
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
        after: after || start,
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
    const read = readWithin(memory, client, limit, async (session, maxBytes) => {
      const parameters = parametersOf(list, offset > 0, maxBytes);
      const statement = selectPage(list, sort, parameters, limit > ALWAYS_FITTING);
      const row = itemAt(await session.all<PageRow>(statement, ...values), 0);
      if (row.records !== null) return row;
      if (maxBytes < MAX_PAGE_BYTES) fail("unavailable", NO_ROOM);
      return failPageTooLarge();
    });
    return db.run("list", read, { client });
  };

  const maxOffset = list.ofUser ? null : maxOffsetOfAll;

  return async (query, client, memory) => {
    const { limit, offset, after, sort = "id" } = query;
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
      nextAfter: after === undefined ? null : next,
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
