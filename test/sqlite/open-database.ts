import { Database } from "bun:sqlite";
import { afterAll, spyOn } from "bun:test";
import type { StoreOptions } from "../../src/domain/store.ts";
import { openSqlite } from "../../src/sqlite/backend.ts";
import { makeDirectory } from "../support/directory.ts";
import { storeOptions } from "../support/open-store.ts";

/** @returns a path for a database, in a directory that is deleted when this process has ended */
export function makePath() {
  const directory = makeDirectory();
  return { directory, path: directory.at("a.db") };
}

/** Opens a database as a server does, unless the options say otherwise. Disposing of the store closes it. */
export async function openDatabase(databaseUrl: string, options: Partial<StoreOptions> = {}) {
  const store = await openSqlite({ ...storeOptions, databaseUrl, ...options });
  return Object.assign(store, { [Symbol.asyncDispose]: store.close });
}

export function runSql(path: string, sql: string): void {
  using db = new Database(path);
  db.run(sql);
}

export function query(path: string, sql: string): unknown[] {
  using db = new Database(path, { readwrite: true, create: false });
  return db.prepare(sql).values().flat();
}

/** In this file, connections do not wait for a lock: it is the test that holds it. */
export function skipLockWaits(): void {
  const { run } = Database.prototype;
  const spy = spyOn(Database.prototype, "run");
  spy.mockImplementation(function runWithoutWait(this: Database, sql: string, ...rest: any[]) {
    return run.call(this, sql.replace(/(?<=busy_timeout = )[1-9]\d*/, "20"), ...rest);
  } as typeof run);
  afterAll(() => spy.mockRestore());
}
