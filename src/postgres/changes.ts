/** The change feed: reads pages of numbered changes. */
import {
  type ChangePage,
  type ChangeQuery,
  type ChangeStore,
  type Feed,
  requireKept,
  startOf,
} from "../change.ts";
import { fail } from "../error.ts";
import { joinRecords, LARGE_PAGE_BYTES } from "../page.ts";
import { deleteExpired } from "./change-expiry.ts";
import { changeJson, plainRowsOf, readChanges, slicesOf, smallRowsOf } from "./change-rows.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import {
  failEmpty,
  feedState,
  hasUnnumbered,
  MAX_ATTEMPTS,
  type Numbering,
  RETRY_MS,
} from "./numbering.ts";
import { buildInSlices, type Slice } from "./page-slices.ts";
import { createSingleFlight } from "./single-flight.ts";

/** How long a page waits for the numbering of changes. What was numbered until then stays so. */
const NUMBERING_TIMEOUT_MS = 5_000;
/** Rows of a slice. Their records have 3 MiB at most, because large ones are read apart. */
const SLICE_ROWS = 100;

const stateColumns = `
  state.name as feed, state.first, state.last, state.is_current as "isCurrent",
  ${hasUnnumbered("state")} as "isBehind"
`;
const selectState = `
  select ${stateColumns}
  from (${feedState}) as state
`;
/**
 * Parameters: `after`, or null, the offset and the limit. Not from a place before the first change: deleted rows can stay
 * for as long as any snapshot.
 */
const selectPage = `
  select ${stateColumns}, page.records, coalesce(octet_length(page.records), 0) as bytes
  from (${feedState}) as state
  cross join lateral (
    select string_agg(${changeJson} || '}', ',') as records
    from (
      select *
      from changes
      where id > greatest(coalesce($1::bigint, state.first - 1 + $2::bigint), state.first - 1)
      order by id
      limit $3::bigint
    ) as row
  ) as page
`;

interface FeedRow extends Feed {
  readonly isCurrent: boolean;
  /** Whether there are changes that have no id yet. */
  readonly isBehind: boolean;
}

interface PageRow extends FeedRow {
  readonly records: string | null;
  readonly bytes: number;
}

function totalOf({ first, last }: Feed): number {
  return last - first + 1;
}

function pageOf({ feed, first, last }: Feed, records: string): ChangePage {
  const state = { feed, first, last };
  return { ...state, total: totalOf(state), records, nextAfter: null };
}

async function readState(session: Session): Promise<FeedRow> {
  return (await session.first<FeedRow>(selectState)) ?? failEmpty();
}

/** Whether the page has as many changes as it may have, and others follow. */
function isFull({ after, limit }: ChangeQuery, { last }: Feed): boolean {
  return after !== undefined && after + limit < last;
}

/** @param subscribe as in the port */
export function createChangeStore(
  context: StoreContext,
  { numberAll, runPass }: Numbering,
  subscribe: ChangeStore["subscribe"],
): ChangeStore {
  const { db } = context;
  const share = createSingleFlight<ChangePage | null>();
  /** By the last pass. A server that does not number gives the feed of a copied or restored database no other name. */
  let isReadOnly = false;

  /** Whether the page, or the id of the last change, may lack what was committed before. */
  function mustNumber({ isBehind }: FeedRow): boolean {
    // On Citus, the outboxes of orders are on their shards.
    return isBehind || db.layout === "citus";
  }

  /**
   * Reads rows after all changes were numbered. If the rows are a full page and more follow, numbering adds none to them:
   * they are not read again, and one pass is enough, even if another process is numbering or changes are left, as after
   * a large import.
   */
  async function readNumbered<Row extends FeedRow>(
    query: ChangeQuery,
    read: () => Promise<Row | null>,
  ): Promise<Row> {
    const deadlineMs = performance.now() + NUMBERING_TIMEOUT_MS;
    let isNumbered = false;
    for (let attempts = 0; attempts < MAX_ATTEMPTS && performance.now() < deadlineMs; ) {
      const row = await read();
      const isUsable = row !== null && (row.isCurrent || (isNumbered && isReadOnly));
      if (isUsable && (isNumbered || !mustNumber(row))) {
        requireKept(query, row);
        return row;
      }
      if (isNumbered) break;
      const pass = await runPass();
      isReadOnly = pass.isReadOnly === true;
      if (row?.isCurrent === true && row.feed === pass.feed && isFull(query, row)) {
        requireKept(query, row);
        return { ...row, last: pass.last };
      }
      isNumbered = !pass.isTaken && !pass.hasMore;
      if (!pass.isTaken) continue;
      attempts += 1;
      await Bun.sleep(RETRY_MS);
    }
    return fail("unavailable", "the changes are being numbered");
  }

  /**
   * Reads the state of the feed within the snapshot of the rows.
   * @throws {AppError} unavailable if the feed must get a new name first
   */
  async function openFeed(session: Session, query: ChangeQuery): Promise<Feed> {
    const { isCurrent, feed, first, last } = await readState(session);
    if (!isCurrent && !isReadOnly) fail("unavailable", "the feed is about to get another name");
    const state = { feed, first, last };
    requireKept(query, state);
    return state;
  }

  async function* readSlices(
    session: Session,
    query: ChangeQuery,
    state: Feed,
  ): AsyncGenerator<Slice> {
    let start = startOf(query, state);
    let missing = query.limit;
    for (;;) {
      const limit = Math.min(SLICE_ROWS, missing);
      const changes = await readChanges(session, start, limit);
      missing -= changes.length;
      start += changes.length;
      const isLast = missing === 0 || changes.length < limit;
      const total = totalOf(state);
      if (query.include === undefined) {
        yield { total, rows: plainRowsOf(changes), isLast };
      } else {
        for await (const rows of slicesOf(session, changes)) yield { total, rows, isLast: false };
        yield { total, rows: [], isLast };
      }
      if (isLast) return;
    }
  }

  async function buildPage(query: ChangeQuery): Promise<ChangePage> {
    let state: Feed = { feed: "", first: 1, last: 0 };
    const page = await buildInSlices(context.db, {
      query,
      async *readSlices(session) {
        // That of the last attempt, if one has failed.
        state = await openFeed(session, query);
        yield* readSlices(session, query, state);
      },
    });
    return { ...page, ...state };
  }

  /** @returns `null` if the page exceeds 256 KiB */
  async function readPlain(query: ChangeQuery, client?: string): Promise<ChangePage | null> {
    const { after = null, offset, limit } = query;
    const read = (session: Session) => session.first<PageRow>(selectPage, after, offset, limit);
    const row = await readNumbered(query, () => db.runAdmitted("list", read, { client }));
    return row.bytes > LARGE_PAGE_BYTES ? null : pageOf(row, row.records ?? "");
  }

  /** @returns `null` if the page may exceed 256 KiB */
  async function readWithRecords(query: ChangeQuery, client?: string): Promise<ChangePage | null> {
    await readNumbered(query, () => db.runAdmitted("list", readState, { client }));
    if (query.limit > SLICE_ROWS) return null;
    const read = async (session: Session): Promise<ChangePage | null> => {
      const feed = await openFeed(session, query);
      const start = startOf(query, feed);
      const changes = await readChanges(session, start, query.limit);
      const rows = await smallRowsOf(session, changes);
      return rows && pageOf(feed, joinRecords(rows, query.limit).records);
    };
    return db.runAdmitted("list", read, { transaction: true, client });
  }

  /** Clients that wait ask for the same page when there is a change. */
  function readSmall(query: ChangeQuery, client?: string): Promise<ChangePage | null> {
    const read = query.include === "record" ? readWithRecords : readPlain;
    return share(JSON.stringify([client, query]), () => read(query, client));
  }

  return {
    async list(query, client) {
      const read = () => readSmall(query, client);
      return (await db.limiter.admit("list", read, client)) ?? buildPage(query);
    },

    subscribe,

    async deleteExpired(before, signal) {
      await numberAll();
      await deleteExpired(db, before, signal);
    },
  };
}
