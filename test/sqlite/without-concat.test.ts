// SQLite without `concat`, as macOS 14 provides it, returns the same texts.
import { Database } from "bun:sqlite";
import { afterAll, expect, spyOn, test } from "bun:test";
import { recordTextContract } from "../contract/record-text.ts";
import { makePath, openDatabase } from "./open-database.ts";

const { prepare } = Database.prototype;
const prepareOlder = spyOn(Database.prototype, "prepare");
prepareOlder.mockImplementation(function prepareWithVersion(this: Database, sql: string) {
  return prepare.call(this, sql.replace("sqlite_version()", "'3.43.2'"));
} as typeof prepare);
afterAll(() => prepareOlder.mockRestore());

recordTextContract((options) => openDatabase(makePath().path, options));

test("no statement calls concat when SQLite has none", () => {
  const statements = prepareOlder.mock.calls.map(([sql]) => sql);
  expect(statements.filter((sql) => sql.includes("concat("))).toEqual([]);
});
