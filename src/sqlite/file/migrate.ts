/** The schema of a database: its version, whether it is the one of this program, and its migrations. */
import { Database } from "bun:sqlite";
import { fail, messageOf, systemCode } from "../../base/error.ts";
import { quoteReadably } from "../../base/readable-text.ts";
import { requireCurrent, requireSupported } from "../../base/schema-version.ts";
import schema from "../migrations/0001_schema.sql" with { type: "text" };
import { pragma } from "./connection.ts";
import { withIoErrors } from "./errors.ts";

/** In order. The version of a schema is the number of migrations that have run. Never edit a released one. */
export const migrations: readonly string[] = [schema];

export const SCHEMA_VERSION = migrations.length;

/** "uapi". SQLite's `application_id`, which marks a file as a user-api database. */
export const APPLICATION_ID = 0x75617069;

/** Tables that SQLite's `analyze` and Litestream create in any database. Litestream may open a new one first. */
const tablesOfOthers = [
  "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
  "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
  "CREATE TABLE _litestream_lock (id INTEGER)",
  "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
];

/** A table, index, trigger or view. A file that is not ours may have values of any type. */
type SchemaEntry = Readonly<Record<"type" | "name" | "table" | "sql", unknown>>;

const selectEntries = `
  select type, name, tbl_name as "table", sql
  from main.sqlite_schema
  where sql is null or sql not in (${tablesOfOthers.map((sql) => `'${sql}'`).join(", ")})
`;

function entriesOf(db: Database): readonly SchemaEntry[] {
  try {
    return withIoErrors(db, () => db.prepare<SchemaEntry, []>(selectEntries).all());
  } catch (error) {
    if (systemCode(error) !== "SQLITE_ERROR") throw error;
    return fail("operator", `the schema is damaged: ${messageOf(error)}`);
  }
}

export function readEntries(scripts = migrations): readonly SchemaEntry[] {
  using db = new Database(":memory:");
  for (const sql of scripts) db.run(sql);
  return entriesOf(db);
}

/** A trigger, a view or a generated column would run with our statements. @throws {AppError} operator if anything differs */
function requireSchema(db: Database, scripts: readonly string[]): void {
  const because = ({ name }: SchemaEntry, problem: string): never => {
    const what = `${quoteReadably(String(name).slice(0, 100))} ${problem}`;
    return fail("operator", `the schema is not that of version ${scripts.length}: ${what}`);
  };
  const missing = new Map(readEntries(scripts).map((entry) => [JSON.stringify(entry), entry]));
  for (const entry of entriesOf(db))
    if (!missing.delete(JSON.stringify(entry))) because(entry, "differs, or does not belong to it");
  for (const entry of missing.values()) because(entry, "is missing");
}

/** @returns the version, perhaps newer than this program; 0 if it is empty. @throws {AppError} operator if it belongs to another application */
export function readVersion(db: Database): number {
  const version = pragma(db, "user_version");
  const isOurs = pragma(db, "application_id") === APPLICATION_ID;
  if (version < 0 || (!isOurs && (version > 0 || entriesOf(db).length > 0)))
    fail("operator", "the database belongs to another application");
  return version;
}

/**
 * Call it before anything else is read: statements of this program rely on the schema.
 * @returns the schema version; 0 if the database is empty
 * @throws {AppError} operator if the schema is newer than this program, or not that of its version, or if the database
 * belongs to another application
 */
export function findVersion(db: Database, available = migrations): number {
  // One snapshot: another process may commit the first migration meanwhile.
  const find = db.transaction(() => {
    const version = readVersion(db);
    requireSupported(version, available.length);
    requireSchema(db, available.slice(0, version));
    return version;
  });
  return find();
}

/** @throws {AppError} operator if the database is empty, or its schema is older than this program */
export function requireMigrated(version: number): void {
  // E.g. a backup that was cut off.
  if (version === 0) fail("operator", "the database is empty");
  requireCurrent(version, SCHEMA_VERSION);
}

export function requireCurrentSchema(db: Database): void {
  requireMigrated(findVersion(db));
}

/** In one transaction. Two processes may call it concurrently. @returns the version before */
export function migrate(db: Database, available = migrations): number {
  const run = db.transaction(() => {
    const version = findVersion(db, available);
    if (version === available.length) return version;
    for (const sql of available.slice(version)) db.run(sql);
    db.run(`pragma application_id = ${APPLICATION_ID}`);
    db.run(`pragma user_version = ${available.length}`);
    return version;
  });
  return run.immediate();
}
