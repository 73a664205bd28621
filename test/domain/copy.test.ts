// What the copy does if a target stores something else: test/cli/copy.test.ts copies between databases.
import { expect, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import { type CopyRow, type CopyTarget, copyRows } from "../../src/domain/copy.ts";
import { expectRejection } from "../support/expect-error.ts";

const users: readonly CopyRow[] = [
  { id: 1, email: "a@b.cd", version: null },
  { id: 2, email: "2", version: 2 },
];

/** Of one table with rows. @param last the last assigned id of each table */
function inMemory(last: number): CopyTarget & { readonly rows: CopyRow[] } {
  const rows: CopyRow[] = [];
  return {
    rows,
    async *read(table) {
      for (const row of table === "users" ? rows : []) yield [row];
    },
    lastId: async () => last,
    write: async (_table, written) => void rows.push(...written),
    async advanceIds() {},
  };
}

const differ = "the copied rows of users differ from the source";
const change = (fields: CopyRow) => (rows: CopyRow[]) =>
  rows.splice(1, 1, { ...users[1], ...fields });
test.each<[problem: string, spoil: (rows: CopyRow[]) => unknown, last?: number]>([
  [differ, (rows) => rows.pop()],
  [differ, (rows) => rows.push({ id: 3 })],
  [differ, (rows) => rows.reverse()],
  [differ, change({ id: 3 })],
  [differ, change({ email: 2 })],
  [differ, change({ email: "2 " })],
  [differ, change({ version: null })],
  ["ids of users up to 9 could be assigned again", () => {}, 8],
])("copyRows rejects because %s", async (message, spoil, last = 9) => {
  const [source, target] = [inMemory(9), inMemory(last)];
  source.rows.push(...users);
  const advanceIds = async (table: string) => {
    if (table === "tokens") spoil(target.rows);
  };
  const copying = copyRows(source, { ...target, advanceIds }, new AbortController().signal);
  await expectRejection(copying, "operator", message);
});

test("copyRows stops after the batch in which it is aborted", async () => {
  const [source, target, stop] = [inMemory(9), inMemory(9), new AbortController()];
  source.rows.push(...users);
  const write: CopyTarget["write"] = async (table, rows) => {
    await target.write(table, rows);
    stop.abort(new AppError("operator", "interrupted"));
  };
  const copying = copyRows(source, { ...target, write }, stop.signal);
  await expectRejection(copying, "operator", "interrupted");
  expect(target.rows).toHaveLength(1);
});
