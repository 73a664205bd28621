// The change feed on SQLite: what the contract leaves open.
import { afterAll, expect, test } from "bun:test";
import { newUser, orderFields, rename, setPaid } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { openDatabase, runSql } from "./open-database.ts";

const directory = makeDirectory();
afterAll(() => directory[Symbol.dispose]());

/** Breaks a feed of six changes. @returns what `check` reports */
async function findingsAfter(sql: string): Promise<readonly string[]> {
  const path = directory.at(`${crypto.randomUUID()}.db`);
  const store = await openDatabase(path);
  const { id } = await newUser(store); // 1
  const gone = await newUser(store); // 2
  await store.users.update(id, rename, null); // 3
  await store.users.remove(gone.id, null); // 4
  await store.orders.create(orderFields(id), null); // 5
  await store.orders.update(1, setPaid, null); // 6
  await store.close();
  runSql(path, sql);
  await using broken = await openDatabase(path);
  return await broken.check();
}

test.each([
  ["select 1", []],
  ["delete from changes where id <= 4", []],
  ["delete from changes where id = 2", ["the changes are not consecutive: 5 of them from 1 to 6"]],
  [
    "update changes set version = 3 where id = 3; update users set version = 3 where id = 1",
    ["the changes of user 1 do not ascend by one: version 3 follows 1"],
  ],
  [
    "update changes set version = 2 where id = 4",
    ["the changes of user 2 do not ascend by one: version 2 follows 1"],
  ],
  [
    "update changes set type = 1 where id = 3",
    ["the changes of user 1 do not ascend by one: version 2 follows 1"],
  ],
  [
    "update users set version = 3 where id = 1",
    ["the last change of user 1 does not agree with the record"],
  ],
  ["update orders set version = 1", ["the last change of order 1 does not agree with the record"]],
  [
    "update orders set status = 'shipped'",
    ["the last change of order 1 does not agree with the record"],
  ],
  [
    "update changes set type = 2, version = 2 where id = 4",
    ["the last change of user 2 does not agree with the record"],
  ],
  [
    "update changes set type = 3, version = 1 where id = 3",
    ["the last change of user 1 does not agree with the record"],
  ],
])("check of a feed after: %s", async (sql, findings) => {
  expect(await findingsAfter(sql)).toEqual(findings);
});
