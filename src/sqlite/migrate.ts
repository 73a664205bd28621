import type { Database } from "bun:sqlite";
import { AppError } from "../error.ts";
import first from "./migrations/0001_users_orders_tokens.sql" with { type: "text" };

/** In order; the schema's version is how many of them have run. Never edit one that was released. */
const migrations: readonly string[] = [first];

/** "uapi": marks a file as ours (SQLite's `application_id`). */
const APPLICATION_ID = 0x75617069;

function pragma(db: Database, name: string): number {
  return Number(db.prepare<Record<string, number>, []>(`pragma ${name}`).get()?.[name]);
}

/**
 * What is to run before this program can use the database.
 * @returns how many migrations are missing
 * @throws {AppError} operator when the schema is newer than this program, or not ours at all
 */
export function missingMigrations(db: Database): number {
  const version = pragma(db, "user_version");
  const tables = db.prepare("select 1 from sqlite_schema limit 1").get();
  if (pragma(db, "application_id") !== APPLICATION_ID && (version > 0 || tables !== null)) {
    throw new AppError("operator", "it is the database of another program");
  }
  if (version > migrations.length) {
    const known = `this program knows versions up to ${migrations.length}`;
    throw new AppError("operator", `its schema has version ${version}, ${known}: use a newer one`);
  }
  return migrations.length - version;
}

/** Brings the schema up to date: all or nothing, also when two processes try at once. */
export function migrate(db: Database): void {
  const run = db.transaction(() => {
    const missing = missingMigrations(db);
    if (missing === 0) return;
    for (const sql of migrations.slice(-missing)) db.run(sql);
    db.run(`pragma application_id = ${APPLICATION_ID}`);
    db.run(`pragma user_version = ${migrations.length}`);
  });
  run.immediate();
}
