import { expect, test } from "bun:test";
import { describeSqliteError } from "../../src/sqlite/file/errors.ts";
import { makeDirectory } from "../support/directory.ts";

test.each([
  ["SQLITE_FULL", "the disk is full"],
  ["SQLITE_IOERR_WRITE", "I/O error"],
  ["ENOSPC", "the disk is full"],
  ["EACCES", "permission denied"],
  ["EEXIST", "a part of the path is not a directory"],
])("describeSqliteError says what %s means, and returns a bug unchanged", (code, meaning) => {
  const error = Object.assign(new Error("the system call failed"), { code });
  expect(describeSqliteError("Cannot open a.db", error)).toMatchObject({
    code: "operator",
    message: `Cannot open a.db: ${meaning}`,
  });
  const bug = new Error("a bug");
  expect(describeSqliteError("Cannot open a.db", bug)).toBe(bug);
});

test("an I/O error is not taken for the cause of damage when no memory may be executable", () => {
  using directory = makeDirectory();
  const module = Bun.resolveSync("../../src/sqlite/file/errors.ts", import.meta.dir);
  const script = `
    import { Database } from "bun:sqlite";
    import { hadIoError } from ${JSON.stringify(module)};
    const db = new Database(${JSON.stringify(directory.at("a.db"))});
    db.run("pragma journal_mode = wal");
    db.run("create table t (n)");
    console.log(hadIoError(db));
  `;
  const env = { ...Bun.env, ["BUN_JSC_useJIT"]: "0" };
  const { stdout, stderr } = Bun.spawnSync([process.execPath, "-e", script], { env });
  expect([`${stdout}`, `${stderr}`]).toEqual(["false\n", ""]);
});
