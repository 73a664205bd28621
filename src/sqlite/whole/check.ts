/** Verifies a database: the structure of the file, the references, and all stored counts. */
import type { Database } from "bun:sqlite";
import { fail, messageOf, systemCode } from "../../base/error.ts";
import type { Schema } from "../../base/schema.ts";
import { changeChecks } from "../../domain/change-checks.ts";
import { tablesWithSequence } from "../../domain/copy.ts";
import { Order } from "../../domain/order.ts";
import { MAX_RECORD_BYTES, type RecordTable } from "../../domain/record.ts";
import { User } from "../../domain/user.ts";
import { hadIoError, IO_ERROR, meaningOf } from "../file/errors.ts";
import { readEntries } from "../file/migrate.ts";
import { recordJson } from "../tables/columns.ts";
import { type CountedList, levelBits, storedLists, tableOf } from "../tables/count-index.ts";
import { findWrongRuns } from "../tables/time-runs.ts";

type Find = (db: Database) => Iterable<string>;

/** Maximum per section. */
const MAX_FINDINGS = 10;
/** More of them are not counted. */
const MAX_DAMAGED_PAGES = 100;

/** A page that belongs to two trees, or twice to one. The walk over a tree with many of them would not end. */
const SHARED_PAGE = /2nd reference to page/;

/**
 * Errors that the contents of the file cause. This includes SQLITE_ERROR: all statements are constant, so it means
 * a damaged schema, malformed JSON, or a sum that overflows.
 */
const UNREADABLE = /^SQLITE_(CORRUPT|NOTADB|ERROR|TOOBIG)/;

function isWalkable(findings: readonly string[]): boolean {
  return findings.length < MAX_DAMAGED_PAGES && !findings.some((line) => SHARED_PAGE.test(line));
}

export function* findInFile(db: Database) {
  using statement = db.prepare<{ integrity_check: string }, []>(
    `pragma integrity_check(${MAX_DAMAGED_PAGES})`,
  );
  for (const { integrity_check } of statement.iterate()) {
    // The first row has all damaged pages, in several lines after a header. Then SQLite walks over the tables.
    const lines = integrity_check.split("\n");
    yield* lines.filter((line) => line !== "ok" && !line.startsWith("***"));
    if (!isWalkable(lines)) return;
  }
}

/**
 * Finds the tables in which a row breaks a CHECK constraint. SQLite does not load the constraints of a database at rest,
 * so `pragma integrity_check` does not verify them. A temporary table of our own schema takes one row after the other.
 */
function* findBrokenConstraints(db: Database) {
  for (const entry of readEntries()) {
    const [name, sql] = [String(entry.name), String(entry.sql)];
    if (entry.type !== "table" || !sql.includes(" check ")) continue;
    // Temporary sequences would hide those of the database.
    const columns = sql.slice(sql.indexOf("(")).replace(/ autoincrement/i, "");
    db.run(`create temp table checked ${columns}`);
    try {
      db.run("create temp trigger checked after insert on checked begin delete from checked; end");
      db.run(`insert into temp.checked select * from main.${name}`);
    } catch (error) {
      const code = systemCode(error);
      if (!code.startsWith("SQLITE_CONSTRAINT")) throw error;
      // `integrity_check` finds all others.
      if (code === "SQLITE_CONSTRAINT_CHECK") yield `CHECK constraint failed in ${name}`;
    } finally {
      db.run("drop table temp.checked");
    }
  }
}

function findBy(query: string): Find {
  return function* find(db) {
    using statement = db.prepare<{ problem: string }, []>(query);
    for (const { problem } of statement.iterate()) yield problem;
  };
}

const findOrphans = findBy(`
  select format('row %d of %s references a missing row', rowid, "table") as problem
  from pragma_foreign_key_check
`);

const findWrongSequences = findBy(`
  select format('the last id of %s is wrong', name) as problem
  from (${tablesWithSequence.map((table) => `select '${table}' as name, max(id) as last from ${table}`).join(" union all ")})
  left join sqlite_sequence using (name)
  where last > coalesce(seq, 0) or seq > ${Number.MAX_SAFE_INTEGER}
`);

/**
 * Finds the buckets of a list whose stored count differs from a count of the rows. The last id is a number that a damaged
 * file can claim, so of consecutive buckets that have neither a row nor a count, only the first one is compared.
 */
function findMiscounts(list: CountedList): Find {
  const table = tableOf(list);
  const isDense = list === table;
  const last = `(select coalesce(max(seq), 0) from sqlite_sequence where name = '${table}')`;
  const finds = levelBits.map((shift, level) => {
    const assigned = `min(1 << ${shift}, max(0, ${last} - (bucket << ${shift})))`;
    return findBy(`
      with
        present (bucket, ids) as (
          select (id - 1) >> ${shift}, count(*)
          from ${table}
          where ${isDense ? "true" : `status = '${list}'`}
          group by 1
        ),
        kept (bucket, ids) as (select bucket, ids from buckets where list = '${list}' and level = ${level}),
        -- -1, so that bucket 0 is compared too.
        known (bucket) as (select -1 union select bucket from present union select bucket from kept)
      select format('the total of ${list} is wrong in bucket %d of level ${level}', bucket) as problem
      from (select bucket from known union select bucket + 1 from known)
      left join present using (bucket)
      left join kept using (bucket)
      where bucket >= 0
        and coalesce(kept.ids, 0) <> ${isDense ? `${assigned} -` : ""} coalesce(present.ids, 0)
    `);
  });
  return (db) => finds.values().flatMap((find) => find(db));
}

/** `json_type` alone accepts JSON5. */
function findMalformed(table: string, column: string, type: "array" | "object"): Section {
  const find = findBy(`
    select format('${column} of row %d of ${table} is not a JSON ${type}', rowid) as problem
    from ${table}
    where not json_valid(${column}) or json_type(${column}) <> '${type}'
  `);
  return [`the JSON of ${table}`, find];
}

function findLarge(table: RecordTable, record: Schema): Find {
  return (db) =>
    findBy(`
      select format('row %d of ${table} is larger than ${MAX_RECORD_BYTES} bytes of JSON', id) as problem
      from ${table}
      where octet_length(${recordJson(db, record)}) > ${MAX_RECORD_BYTES}
    `)(db);
}

/** Prices are added in two parts, because SQLite rounds a product that exceeds 64 bits. */
const findWrongTotals = findBy(`
  select format('the total of order %d does not match its items', id) as problem
  from orders
  where json_valid(items)
    and (
      select total - coalesce(sum((value ->> 'quantity') * ((value ->> 'unit_price') % 134217728)), 0)
        <> coalesce(sum((value ->> 'quantity') * ((value ->> 'unit_price') / 134217728)), 0) * 134217728
      from json_each(items)
    )
`);

/** Each change names the one before it, and a record its newest one. What has expired may still be named. */
const findBrokenChains = findBy(`
  select format('%s %d does not name its last change', what, id) as problem
  from (
    select what, id, named, lag(change) over (partition by is_order, record order by change) as last
    from (
      select 'change' as what, id, type > 3 as is_order, record_id as record, id as change, previous as named from changes
      union all select 'user', id, false, id, 9e18, last_change from users
      union all select 'order', id, true, id, 9e18, last_change from orders
    )
  )
  where iif(last is null, named >= (select min(id) from changes), named is not last)
`);

type Section = readonly [name: string, find: Find];

/** In the order in which they are reported, after the structure of the file. */
const sections: readonly Section[] = [
  ["the references between rows", findOrphans],
  ["the last ids", findWrongSequences],
  ...storedLists.map((list): Section => [`the totals of ${list}`, findMiscounts(list)]),
  ["the runs of orders", findWrongRuns],
  findMalformed("users", "metadata", "object"),
  findMalformed("orders", "items", "array"),
  findMalformed("orders", "metadata", "object"),
  findMalformed("idempotency_keys", "record", "object"),
  ["the size of users", findLarge("users", User)],
  ["the size of orders", findLarge("orders", Order)],
  ["the totals of orders against their items", findWrongTotals],
  ["the chains of changes", findBrokenChains],
  ...changeChecks("select * from changes").map(([name, query]): Section => [name, findBy(query)]),
];

function checkSection(db: Database, name: string, find: Find, limit = MAX_FINDINGS): string[] {
  const findings: string[] = [];
  try {
    for (const finding of find(db)) {
      findings.push(finding);
      if (findings.length === limit) break;
    }
  } catch (error) {
    if (!UNREADABLE.test(systemCode(error))) throw error;
    findings.push(`cannot check ${name}: ${meaningOf(error) ?? messageOf(error)}`);
  }
  if (findings.length > 0 && hadIoError(db)) fail("unavailable", IO_ERROR);
  return findings;
}

/** What meets damage becomes a finding. @returns a sentence per problem. @throws {AppError} unavailable if the disk fails */
export function checkDatabase(db: Database, atRest = false): readonly string[] {
  const inFile = checkSection(db, "the structure of the file", findInFile, Number.MAX_VALUE);
  if (!isWalkable(inFile)) return inFile.slice(0, MAX_FINDINGS);
  const all = [...sections];
  if (atRest) all.push(["the constraints of rows", findBrokenConstraints]);
  return [
    ...inFile.slice(0, MAX_FINDINGS),
    ...all.flatMap(([name, find]) => checkSection(db, name, find)),
  ];
}
