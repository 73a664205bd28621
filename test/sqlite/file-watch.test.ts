import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import {
  appendFileSync,
  closeSync,
  copyFileSync,
  openSync,
  readSync,
  renameSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { watchFiles } from "../../src/sqlite/file/file-watch.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectThrown } from "../support/expect-error.ts";

/** A database of 2 MB with a log, another connection to it, and a watch on its files. */
function watched() {
  const directory = makeDirectory();
  const path = directory.at("a.db");
  const db = new Database(path, { create: true });
  db.run("pragma journal_mode = wal");
  db.run("pragma wal_autocheckpoint = 0");
  db.run("create table t (n integer primary key, content blob)");
  const insert = (bytes: number) =>
    db.run("insert into t (content) values (randomblob(?))", [bytes]);
  insert(2_000_000);
  db.run("pragma wal_checkpoint(passive)");
  insert(100_000);
  const problems: (string | null)[] = [];
  const other = new Database(path);
  const files = watchFiles(path, (problem) => problems.push(problem), null);
  return {
    path,
    directory,
    db,
    other,
    files,
    problems,
    insert,
    /** Changes the time of the file, also if the test is faster than the clock of the file system. */
    touch(file = path) {
      const { atimeMs, mtimeMs } = statSync(file);
      utimesSync(file, atimeMs / 1000, mtimeMs / 1000 + 1);
    },
    [Symbol.dispose]() {
      other.close();
      db.close();
      files.close();
      directory[Symbol.dispose]();
    },
  };
}

function openToWrite(path: string) {
  const descriptor = openSync(path, "r+");
  return { descriptor, [Symbol.dispose]: () => closeSync(descriptor) };
}

for (const suffix of ["", "-wal", "-shm"]) {
  const name = `a.db${suffix}`;

  test(`isInPlace is false while ${name} is moved away`, () => {
    using it = watched();
    const file = it.path + suffix;
    expect(it.files.isInPlace()).toBe(true);
    renameSync(file, `${file}.moved`);
    expect(it.files.isInPlace()).toBe(false);
    expect(it.files.isInPlace()).toBe(false);
    renameSync(`${file}.moved`, file);
    expect(it.files.isInPlace()).toBe(true);
    expect(it.problems).toEqual([`${file} has been moved or deleted`, null]);
  });

  test(`requireInPlace throws when ${name} is replaced by a copy`, () => {
    using it = watched();
    const file = it.path + suffix;
    it.files.requireInPlace();
    copyFileSync(file, `${file}.copy`);
    renameSync(`${file}.copy`, file);
    const { cause } = expectThrown(() => it.files.requireInPlace(), "unavailable");
    expect(cause).toEqual(new Error(`${file} has been replaced by another file`));
  });
}

const overwritten: readonly (readonly [what: string, (it: ReturnType<typeof watched>) => void])[] =
  [
    ["emptied", ({ path }) => writeFileSync(path, "")],
    ["truncated", ({ path }) => truncateSync(path, statSync(path).size - 4096)],
    ["extended", ({ path }) => appendFileSync(path, "x".repeat(4096))],
    [
      "overwritten by a larger database",
      ({ path, directory, other }) => {
        const file = directory.at("copy.db");
        other.run("vacuum into ?", [file]);
        expect(statSync(file).size).toBeGreaterThan(statSync(path).size);
        copyFileSync(file, path);
      },
    ],
    [
      "overwritten by a file of the same size",
      ({ path, touch }) => {
        writeFileSync(path, Buffer.alloc(statSync(path).size, "x"));
        touch();
      },
    ],
  ];

test.each(overwritten)(
  "isInPlace is false from then on when the database is %s",
  (_what, change) => {
    using it = watched();
    const copy = it.directory.at("before.db");
    copyFileSync(it.path, copy);
    change(it);
    expect(it.files.isInPlace()).toBe(false);
    copyFileSync(copy, it.path);
    expect(it.files.isInPlace()).toBe(false);
    expect(it.problems).toEqual([`${it.path} has been overwritten by another program`]);
  },
);

test.each([0, 1, 50_000])(
  "isInPlace is false from then on when the log is cut to %d bytes",
  (bytes) => {
    using it = watched();
    truncateSync(`${it.path}-wal`, bytes);
    expect(it.files.isInPlace()).toBe(false);
    // SQLite continues behind the hole.
    it.insert(1);
    expect(it.files.isInPlace()).toBe(false);
    expect(it.problems).toEqual([`${it.path}-wal has been truncated by another program`]);
  },
);

test("isInPlace is false when the database is overwritten after the log has started again", () => {
  using it = watched();
  it.db.run("pragma wal_checkpoint(passive)");
  expect(it.files.isInPlace()).toBe(true);
  it.insert(1);
  expect(it.files.isInPlace()).toBe(true);
  writeFileSync(it.path, "");
  expect(it.files.isInPlace()).toBe(false);
});

for (const mode of ["passive", "full", "restart", "truncate"]) {
  test(`isInPlace is true after a checkpoint of another connection (${mode})`, () => {
    using it = watched();
    for (let round = 0; round < 3; round += 1) {
      it.insert(100_000);
      expect(it.files.isInPlace()).toBe(true);
      it.insert(100_000);
      it.other.run(`pragma wal_checkpoint(${mode})`);
      it.touch();
      expect(it.files.isInPlace()).toBe(true);
    }
    expect(it.problems).toEqual([]);
  });
}

test("isInPlace is true after two checkpoints and a log that started again", () => {
  using it = watched();
  it.other.run("pragma wal_checkpoint(truncate)");
  it.insert(100_000);
  it.other.run("pragma wal_checkpoint(passive)");
  expect(it.files.isInPlace()).toBe(true);
  it.insert(100_000);
  it.other.run("pragma wal_checkpoint(passive)");
  expect(it.files.isInPlace()).toBe(true);
});

test("isInPlace is true when a vacuum of another connection has made the database smaller", () => {
  using it = watched();
  const before = statSync(it.path).size;
  it.db.run("delete from t where n = 1");
  it.other.run("vacuum");
  it.other.run("pragma wal_checkpoint(passive)");
  expect(statSync(it.path).size).toBeLessThan(before);
  expect(it.files.isInPlace()).toBe(true);
});

test("isInPlace is true after a part of the log was copied, since a reader needs the rest", () => {
  using it = watched();
  it.other.run("begin");
  it.other.query("select n from t").all();
  it.insert(100_000);
  it.db.run("pragma wal_checkpoint(passive)");
  it.touch();
  expect(it.files.isInPlace()).toBe(true);
  it.other.run("commit");
});

test("isInPlace is true when only the time of the database has changed", () => {
  using it = watched();
  it.touch();
  expect(it.files.isInPlace()).toBe(true);
  writeFileSync(it.path, "");
  expect(it.files.isInPlace()).toBe(false);
});

test("isInPlace is false when the database was truncated and its time set back", () => {
  using it = watched();
  const { atime, mtimeMs } = statSync(it.path);
  truncateSync(it.path, 8192);
  utimesSync(it.path, atime, (Math.floor(mtimeMs) + 0.5) / 1000);
  expect(it.files.isInPlace()).toBe(false);
});

/** The last page that a checkpoint will have copied. @see https://www.sqlite.org/walformat.html */
const COPYING_AT = 128;

test("isInPlace is true while a checkpoint writes to the database", () => {
  using it = watched();
  using index = openToWrite(`${it.path}-shm`);
  const pages = Buffer.alloc(4);
  readSync(index.descriptor, pages, 0, 4, COPYING_AT);
  // As at the beginning of a checkpoint of one more page.
  pages.writeUInt32LE(pages.readUInt32LE() + 1);
  writeSync(index.descriptor, pages, 0, 4, COPYING_AT);
  appendFileSync(it.path, "x".repeat(4096));
  it.touch();
  expect(it.files.isInPlace()).toBe(true);
  pages.writeUInt32LE(pages.readUInt32LE() - 1);
  writeSync(index.descriptor, pages, 0, 4, COPYING_AT);
  expect(it.files.isInPlace()).toBe(false);
});
