/** Verifies what SQLite itself knows of a database: its pages, indexes and constraints. */
import type { Database } from "bun:sqlite";
import { systemCode } from "../../base/error.ts";
import { readEntries } from "../file/migrate.ts";

export type Find = (db: Database) => Iterable<string>;

/** More of them are not counted. */
const MAX_DAMAGED_PAGES = 100;

/** A page that belongs to two trees, or twice to one. The walk over a tree with many of them would not end. */
const SHARED_PAGE = /2nd reference to page/;

/** @returns whether the tables can be read to their ends */
export function isWalkable(findings: readonly string[]): boolean {
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
export function* findBrokenConstraints(db: Database) {
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
