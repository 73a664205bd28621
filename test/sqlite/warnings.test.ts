import { expect, test } from "bun:test";
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { describeSqliteError } from "../../src/sqlite/file/errors.ts";
import { findWarnings } from "../../src/sqlite/file/warnings.ts";
import { makeDirectory } from "../support/directory.ts";
import { openDatabase } from "./open-database.ts";

const FIXED = "3.51.3";

/** On macOS other users cannot enter the directory of temporary files. */
const testExposed = test.skipIf(process.platform === "darwin");

/** An open database whose directory all users can enter, and only its owner can write. */
async function openExposed() {
  const directory = makeDirectory();
  chmodSync(directory.path, 0o755);
  mkdirSync(directory.at("data"));
  chmodSync(directory.at("data"), 0o755);
  const path = directory.at("data/a.db");
  const store = await openDatabase(path);
  for (const suffix of ["", "-wal", "-shm", "-serving"]) chmodSync(path + suffix, 0o640);
  return {
    directory,
    path,
    async [Symbol.asyncDispose]() {
      await store.close();
      directory[Symbol.dispose]();
    },
  };
}

function exposed(...paths: string[]): string[] {
  const list = paths.join(", ");
  return [`every user of this machine can read or change ${list}: use chmod o-rwx`];
}

test("findWarnings names the file system of a network, and versions of SQLite that can damage the database", () => {
  using directory = makeDirectory();
  for (const type of ["nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs"]) {
    const problem = `is on a network file system (${type}), where locks and the write-ahead log`;
    const advice = "of SQLite may fail: use a local disk";
    const path = directory.at("a.db");
    expect(findWarnings(path, FIXED, type)).toEqual([`${path} ${problem} ${advice}`]);
  }
  for (const type of ["ext4", "btrfs", "overlay", "tmpfs", "fuseblk", null])
    expect(findWarnings(directory.at("a.db"), FIXED, type)).toEqual([]);
  for (const version of ["3.44.6", "3.50.7", FIXED, "3.54.1"])
    expect(findWarnings(directory.at("a.db"), version, null)).toEqual([]);
  for (const version of ["3.44.5", "3.50.6", "3.51.2"]) {
    const warning = expect.stringContaining(`SQLite ${version} can damage the database`);
    expect(findWarnings(directory.at("a.db"), version, null)).toEqual([warning]);
  }
});

testExposed(
  "findWarnings names what others can read or change, unless they cannot enter a directory above it",
  async () => {
    await using it = await openExposed();
    expect(findWarnings(it.path, FIXED)).toEqual([]);
    for (const suffix of ["", "-wal", "-shm", "-serving"]) {
      for (const mode of [0o644, 0o602]) {
        chmodSync(it.path + suffix, mode);
        expect(findWarnings(it.path, FIXED)).toEqual(exposed(it.path + suffix));
      }
      chmodSync(it.path + suffix, 0o671);
      expect(findWarnings(it.path, FIXED)).toEqual([]);
    }
    // They could create files in it.
    chmodSync(it.directory.at("data"), 0o777);
    expect(findWarnings(it.path, FIXED)).toEqual(exposed(it.directory.at("data")));
    chmodSync(it.path, 0o666);
    for (const mode of [0o700, 0o770, 0o754]) {
      chmodSync(it.directory.path, mode);
      expect(findWarnings(it.path, FIXED)).toEqual([]);
    }
  },
);

testExposed("openSqlite warns when others can read the target of a link", async () => {
  await using it = await openExposed();
  const path = it.directory.at("data/b.db");
  const link = it.directory.at("link.db");
  writeFileSync(path, "", { mode: 0o644 });
  chmodSync(path, 0o644);
  symlinkSync(path, link);
  const warnings: string[] = [];
  await using _store = await openDatabase(link, { onWarning: (warning) => warnings.push(warning) });
  // SQLite gives the other files the permissions of the database.
  const files = `${path}, ${path}-wal, ${path}-shm`;
  expect(warnings).toEqual([expect.stringContaining(files)]);
});

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
