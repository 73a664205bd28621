/**
 * Ranges of times as ranges of ids, without an index on times. Ids are divided into blocks. When all ids of a block are
 * assigned, it is stored as a few runs: ids whose times ascend or descend. So only the create that gets the last id of a
 * block reads the block. Orders are never deleted, and their times never change.
 */
import type { Database } from "bun:sqlite";
import { systemCode } from "../../base/error.ts";
import type { Order } from "../../domain/order.ts";
import type { IdRange } from "./lists.ts";

/** Number of ids per block. The first block begins with id 1. */
const BLOCK_IDS = 4096;
/** A block with more is one run without a direction. */
const MAX_RUNS = 4;

/** The runs of a block have all of its ids, also those without an order. */
interface Run {
  readonly first: number;
  last: number;
  /** 1 if the times ascend with the ids, -1 if they descend, 0 if they do neither, or all are equal. */
  direction: number;
  earliest: string;
  latest: string;
}

type OrderTime = Pick<Order, "id" | "created_at">;

/** @returns the last id of the block that has an id */
export function blockEnd(id: number): number {
  return Math.ceil(id / BLOCK_IDS) * BLOCK_IDS;
}

/** @returns the runs of a block, as its orders have them. @param end the last id of the block */
function readRuns(db: Database, end: number): readonly Run[] {
  const times = db.query<OrderTime, [before: number, end: number]>(`
    select id, created_at
    from orders
    where id > ? and id <= ?
    order by id
  `);
  const runs: Run[] = [];
  let run: Run | undefined;
  let before = "";
  for (const { id, created_at: time } of times.iterate(end - BLOCK_IDS, end)) {
    const step = Number(time > before) - Number(time < before);
    if (run === undefined || step * run.direction < 0) {
      if (run !== undefined) run.last = id - 1;
      const first = run === undefined ? end - BLOCK_IDS + 1 : id;
      run = { first, last: end, direction: 0, earliest: time, latest: time };
      runs.push(run);
    } else if (step !== 0) {
      run.direction = step;
      run[step > 0 ? "latest" : "earliest"] = time;
    }
    before = time;
  }
  const [first] = runs;
  if (first === undefined || runs.length <= MAX_RUNS) return runs;
  const [earliest = "", ...later] = runs.flatMap((run) => [run.earliest, run.latest]).sort();
  return [{ ...first, last: end, direction: 0, earliest, latest: later.at(-1) ?? "" }];
}

/** @returns a function that stores the runs of a block, all ids of which are assigned. @see blockEnd */
export function prepareStoreRuns(db: Database): (end: number) => void {
  const remove = db.prepare<null, [before: number, end: number]>(`
    delete from order_runs
    where first > ? and first <= ?
  `);
  const insert = db.prepare<null, [number, number, number, string, string]>(`
    insert into order_runs (first, last, direction, earliest, latest)
    values (?, ?, ?, ?, ?)
  `);
  let damaged = 0;

  return (end) => {
    if (end === damaged) return;
    try {
      const runs = readRuns(db, end);
      remove.run(end - BLOCK_IDS, end);
      for (const { first, last, direction, earliest, latest } of runs)
        insert.run(first, last, direction, earliest, latest);
    } catch (error) {
      // The next attempt succeeds, so that a damaged order does not prevent new ones. The block is read without runs.
      if (systemCode(error).startsWith("SQLITE_CORRUPT")) damaged = end;
      throw error;
    }
  };
}

/**
 * @returns a function that finds the ids of orders from one time to another, which is excluded. It searches runs that are
 * partly outside, if it may. Otherwise their orders are compared, and so are those that have no run
 */
export function prepareTimeRanges(db: Database) {
  const runs = db.prepare<
    Pick<Run, "first" | "last" | "direction"> & Record<"overlaps" | "isInside", number>,
    Record<"from" | "to", string>
  >(`
    select first, last, direction,
      latest >= +$from and earliest < +$to as overlaps,
      earliest >= +$from and latest < +$to as isInside
    from order_runs
    order by first
  `);
  const next = db.prepare<OrderTime, [id: number]>(`
    select id, created_at
    from orders
    where id >= ?
    order by id
    limit 1
  `);

  /** @returns the first id of a run from which on the times match; the one after its last id if none does */
  function search(first: number, last: number, matches: (time: string) => boolean): number {
    let [low, high] = [first, last + 1];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const row = next.get(middle);
      if (row === null || row.id > last || matches(row.created_at)) high = middle;
      else low = Math.max(middle, row.id) + 1;
    }
    return low;
  }

  return (from: string, to: string, maySearch: boolean): readonly IdRange[] => {
    const ranges: { first: number; last: number; isExact: boolean }[] = [];
    function add(first: number, last: number, isExact: boolean): void {
      const before = ranges.at(-1);
      if (first > last) return;
      if (isExact && before?.isExact && before.last === first - 1) before.last = last;
      else ranges.push({ first, last, isExact });
    }
    let unknown = 1;
    for (const { first, last, direction, overlaps, isInside } of runs.iterate({ from, to })) {
      add(unknown, first - 1, false);
      unknown = last + 1;
      if (!overlaps) continue;
      if (isInside || direction === 0 || !maySearch) add(first, last, isInside === 1);
      else {
        const [start, end] = direction > 0 ? [from, to] : [to, from];
        const isFrom = (limit: string) => (time: string) => time < limit === direction < 0;
        add(search(first, last, isFrom(start)), search(first, last, isFrom(end)) - 1, true);
      }
    }
    add(unknown, Number.MAX_SAFE_INTEGER, false);
    return ranges;
  };
}

/** Finds blocks whose runs are not those of their orders, or are missing although their ids are assigned. */
export function* findWrongRuns(db: Database): Iterable<string> {
  using stored = db.prepare<Run, [before: number, end: number]>(`
    select first, last, direction, earliest, latest
    from order_runs
    where first > ? and first <= ?
    order by first
  `);
  using blocks = db.prepare<{ end: number; newest: number }, []>(`
    select end, (select max(id) from orders) as newest
    from (
      select (id + ${BLOCK_IDS} - 1) / ${BLOCK_IDS} * ${BLOCK_IDS} as end from orders
      union
      select (first + ${BLOCK_IDS} - 1) / ${BLOCK_IDS} * ${BLOCK_IDS} from order_runs
    )
  `);
  for (const { end, newest } of blocks.iterate()) {
    const found = stored.all(end - BLOCK_IDS, end);
    const isOpen = end > newest && found.length === 0;
    if (!isOpen && !Bun.deepEquals(found, readRuns(db, end)))
      yield `the runs of orders ${end - BLOCK_IDS + 1} to ${end} do not match their times`;
  }
}
