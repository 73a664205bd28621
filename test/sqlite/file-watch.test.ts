import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import * as fs from "node:fs";
import { watchFiles } from "../../src/sqlite/file/file-watch.ts";
import { expectThrown } from "../support/expect-error.ts";
import { makeRandom } from "../support/random.ts";
import { makeWriter } from "./writer.ts";

function watched() {
  const made = makeWriter();
  made.add(2_000_000);
  made.db.run("pragma wal_checkpoint(passive)");
  made.add(100_000);
  const problems: (string | null)[] = [];
  const files = watchFiles(made.path, (problem) => problems.push(problem), null);
  return {
    ...made,
    files,
    problems,
    /** Changes the time of the file, also if the test is faster than the clock of the file system. */
    touch() {
      const { atimeMs, mtimeMs } = fs.statSync(made.path);
      fs.utimesSync(made.path, atimeMs / 1000, mtimeMs / 1000 + 1);
    },
    [Symbol.dispose]() {
      files.close();
      made[Symbol.dispose]();
    },
  };
}

for (const suffix of ["", "-wal", "-shm"])
  test(`a.db${suffix} is not in place while it is moved away, or replaced`, () => {
    using it = watched();
    const file = it.path + suffix;
    it.files.requireInPlace();
    fs.renameSync(file, `${file}.moved`);
    for (let call = 0; call < 2; call += 1) expect(it.files.isInPlace()).toBe(false);
    fs.renameSync(`${file}.moved`, file);
    expect(it.files.isInPlace()).toBe(true);
    fs.copyFileSync(file, `${file}.copy`);
    fs.renameSync(`${file}.copy`, file);
    const { cause } = expectThrown(() => it.files.requireInPlace(), "unavailable");
    const replaced = `${file} has been replaced by another file`;
    expect(cause).toEqual(new Error(replaced));
    expect(it.problems).toEqual([`${file} has been moved or deleted`, null, replaced]);
  });

type Change = readonly [what: string, (it: ReturnType<typeof watched>) => void];

const overwritten: readonly Change[] = [
  ["emptied", ({ path }) => fs.writeFileSync(path, "")],
  [
    "overwritten by a file of the same size",
    ({ path, touch }) => {
      fs.writeFileSync(path, Buffer.alloc(fs.statSync(path).size, "x"));
      touch();
    },
  ],
  [
    "truncated and its time set back",
    ({ path }) => {
      const { atime, mtimeMs } = fs.statSync(path);
      fs.truncateSync(path, 8192);
      fs.utimesSync(path, atime, (Math.floor(mtimeMs) + 0.5) / 1000);
    },
  ],
];

test.each(overwritten)("isInPlace is false from then on when the database is %s", (_, change) => {
  using it = watched();
  const copy = it.directory.at("before.db");
  fs.copyFileSync(it.path, copy);
  change(it);
  expect(it.files.isInPlace()).toBe(false);
  fs.copyFileSync(copy, it.path);
  expect(it.files.isInPlace()).toBe(false);
  expect(it.problems).toEqual([`${it.path} has been overwritten by another program`]);
});

for (const bytes of [0, 1, 50_000])
  test(`isInPlace is false from then on when the log is cut to ${bytes} bytes`, () => {
    using it = watched();
    fs.truncateSync(`${it.path}-wal`, bytes);
    expect(it.files.isInPlace()).toBe(false);
    // SQLite continues behind the hole.
    it.add(1);
    expect(it.files.isInPlace()).toBe(false);
    expect(it.problems).toEqual([`${it.path}-wal has been truncated by another program`]);
  });

test("isInPlace is true while others write, checkpoint, read and vacuum, and false when the database is emptied then", () => {
  let shrinks = 0;
  for (let seed = 1; seed <= 8; seed += 1) {
    using it = watched();
    const { path, db, other, files, add, touch } = it;
    using reader = new Database(path);
    const random = makeRandom(seed);
    const checkpoint = (by: Database, mode: string) => () =>
      by.run(`pragma wal_checkpoint(${mode})`);
    const steps = [
      () => add(100_000),
      touch,
      ...["passive", "full", "restart", "truncate"].map((mode) => checkpoint(other, mode)),
      checkpoint(db, "passive"),
      () => db.run("delete from t where n < (select max(n) from t)"),
      () => other.run("vacuum"),
      // It needs the rest of the log.
      () => reader.run(reader.inTransaction ? "commit" : "begin; select count(*) from t"),
    ];
    for (let step = 0; step < 20; step += 1) {
      const { size } = fs.statSync(path);
      steps[random(steps.length)]?.();
      if (fs.statSync(path).size < size) shrinks += 1;
      // The log starts again between two looks as well.
      if (random(2) > 0) expect([step, files.isInPlace()]).toEqual([step, true]);
    }
    expect([files.isInPlace(), it.problems]).toEqual([true, []]);
    fs.writeFileSync(path, "");
    expect(files.isInPlace()).toBe(false);
  }
  expect(shrinks).toBeGreaterThan(1);
});

/** The last page that a checkpoint will have copied. @see https://www.sqlite.org/walformat.html */
const COPYING_AT = 128;

test("isInPlace is true while a checkpoint writes to the database", () => {
  using it = watched();
  const index = fs.openSync(`${it.path}-shm`, "r+");
  const pages = Buffer.alloc(4);
  fs.readSync(index, pages, 0, 4, COPYING_AT);
  const addCopied = (count: number) => {
    pages.writeUInt32LE(pages.readUInt32LE() + count);
    fs.writeSync(index, pages, 0, 4, COPYING_AT);
  };
  // As at the beginning of a checkpoint of one more page.
  addCopied(1);
  fs.appendFileSync(it.path, "x".repeat(4096));
  it.touch();
  expect(it.files.isInPlace()).toBe(true);
  addCopied(-1);
  expect(it.files.isInPlace()).toBe(false);
  fs.closeSync(index);
});
