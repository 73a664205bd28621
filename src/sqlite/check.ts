/** Whether a database is what it must be: the file itself, and all that is kept beside the rows. */
import type { Database } from "bun:sqlite";
import { order_statuses } from "../order.ts";
import { FANOUT_BITS, full_lists, type Table, TOP, TOTAL } from "./buckets.ts";

/** How many findings of a kind are told. */
const MAX_FINDINGS = 10;
/** Leaves no bit of any id. */
const ALL_BITS = 62;
/** Level of a bucket, and how many bits of an id it leaves out. */
const levels = [
  ...Array.from({ length: TOP + 1 }, (_, level) => ({ level, shift: FANOUT_BITS * (level + 1) })),
  { level: TOTAL, shift: ALL_BITS },
];

interface Bucket {
  readonly list: string;
  readonly level: number;
  readonly bucket: number;
}

/** Buckets whose count is not what a walk over the rows finds, of one list. */
function prepareRecount(db: Database, counted: string) {
  return db.prepare<Bucket, { list: string; level: number; shift: number }>(`
    with
      kept (bucket, ids) as (
        select bucket, ids from buckets where list = $list and level = $level and ids > 0
      ),
      found (bucket, ids) as (${counted})
    select $list as list, $level as level, bucket
    from (
      select * from (select * from kept except select * from found)
      union
      select * from (select * from found except select * from kept)
    )
    limit ${MAX_FINDINGS}
  `);
}

/** The ids that were given, up to the last one, and have no such row. */
function missingFrom(table: Table, where = "true"): string {
  return `
    with recursive
      last (id) as (
        select coalesce((select seq from sqlite_sequence where name = '${table}'), 0)
      ),
      bucket (number) as (
        select 0 where (select id from last) > 0
        union all
        select number + 1 from bucket where number < ((select id from last) - 1) >> $shift
      ),
      present (number, ids) as (
        select (id - 1) >> $shift, count(*) from ${table} where ${where} group by 1
      )
    select number, missing
    from (
      select
        bucket.number,
        min(1 << $shift, (select id from last) - (bucket.number << $shift))
          - coalesce(present.ids, 0) as missing
      from bucket
      left join present on present.number = bucket.number
    )
    where missing > 0
  `;
}

const pending = "status = 'pending'";
const inStatus = `
  select (id - 1) >> $shift, count(*)
  from orders
  where status = $list
  group by 1
`;

/** @returns what is wrong, a sentence each; empty for a sound database */
export function checkDatabase(db: Database): readonly string[] {
  const findings: string[] = [];

  for (const { integrity_check } of db
    .prepare<{ integrity_check: string }, []>(`pragma integrity_check(${MAX_FINDINGS})`)
    .all()) {
    if (integrity_check !== "ok") findings.push(integrity_check);
  }
  for (const { table, rowid } of db
    .prepare<{ table: string; rowid: number }, []>("pragma foreign_key_check")
    .all()
    .slice(0, MAX_FINDINGS)) {
    findings.push(`row ${rowid} of ${table} names a row that is not there`);
  }

  const recounts = [
    { lists: ["users"], recount: prepareRecount(db, missingFrom("users")) },
    { lists: ["orders"], recount: prepareRecount(db, missingFrom("orders")) },
    { lists: ["pending"], recount: prepareRecount(db, missingFrom("orders", pending)) },
    {
      lists: order_statuses.filter((status) => !Object.hasOwn(full_lists, status)),
      recount: prepareRecount(db, inStatus),
    },
  ];
  for (const { lists, recount } of recounts) {
    for (const list of lists) {
      for (const { level, shift } of levels) {
        for (const { bucket } of recount.all({ list, level, shift })) {
          findings.push(`the total of ${list} is wrong in bucket ${bucket} of level ${level}`);
        }
      }
    }
  }

  const miscounted = db.prepare<{ id: number }, []>(`
    select id
    from orders
    where total <> (
      select sum((value ->> 'quantity') * (value ->> 'unit_price'))
      from json_each(items)
    )
    limit ${MAX_FINDINGS}
  `);
  for (const { id } of miscounted.all()) {
    findings.push(`the total of order ${id} is not that of its items`);
  }

  const misplaced = db.prepare<{ user_id: number }, []>(`
    select user_id
    from orders
    group by user_id
    having min(user_position) <> 1
      or count(*) <> max(user_position)
      or count(*) <> count(distinct user_position)
    limit ${MAX_FINDINGS}
  `);
  for (const { user_id } of misplaced.all()) {
    findings.push(`the orders of user ${user_id} are not numbered 1, 2, 3 …`);
  }

  const disordered = db.prepare<{ user_id: number }, []>(`
    select distinct user_id
    from (
      select user_id, id, lag(id) over (partition by user_id order by user_position) as before
      from orders
    )
    where id < before
    limit ${MAX_FINDINGS}
  `);
  for (const { user_id } of disordered.all()) {
    findings.push(`the orders of user ${user_id} are not in the order of their ids`);
  }
  return findings;
}
