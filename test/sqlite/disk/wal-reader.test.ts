import { expect, test } from "bun:test";
import { closeSync, copyFileSync, openSync } from "node:fs";
import type { WalPart } from "../../../src/sqlite/archive/machine.ts";
import { openWal } from "../../../src/sqlite/disk/wal-reader.ts";
import { makeDirectory } from "../../support/directory.ts";
import { openDatabase } from "../archive/archived.ts";

function makeWal(path: string) {
  const db = openDatabase(path);
  const files = { wal: openSync(`${path}-wal`, "r"), index: openSync(`${path}-shm`, "r") };
  return {
    db,
    ...openWal(files),
    insert: (text: string) => db.run("insert into t (content) values (?)", [text]),
    /** Copies the WAL to the database, so that the next write restarts it. */
    checkpoint: () => db.run("pragma wal_checkpoint(passive)"),
    [Symbol.dispose]() {
      db.close(true);
      for (const descriptor of Object.values(files)) closeSync(descriptor);
    },
  };
}

test("read returns all commits, also after the WAL was restarted", () => {
  using directory = makeDirectory();
  using wal = makeWal(directory.at("a.db"));
  const reader = wal.readWal(wal.beginning());
  wal.insert("a");
  expect(reader.read()).toMatchObject({ offset: 0 });
  expect(reader.read()).toBeNull();
  wal.checkpoint();
  expect(reader.read()).toBeNull();
  wal.insert("b");
  wal.insert("c");
  expect(reader.unreadBytes()).toBeGreaterThan(0);
  expect(reader.read()).toMatchObject({ offset: 0 });
  expect(reader.read()).toBeNull();
  expect(reader.unreadBytes()).toBe(0);
});

test("read reports a gap when the WAL was restarted with commits that were not read", () => {
  using directory = makeDirectory();
  using wal = makeWal(directory.at("a.db"));
  const reader = wal.readWal(wal.beginning());
  wal.insert("a");
  while (reader.read() !== null) {
    // To its end.
  }
  wal.insert("lost");
  wal.checkpoint();
  wal.insert("b");
  expect(reader.read).toThrow("restarted");
});

test("read reports a gap when the WAL was restarted before its end was reached once", () => {
  using directory = makeDirectory();
  using wal = makeWal(directory.at("a.db"));
  const reader = wal.readWal(wal.beginning());
  wal.checkpoint();
  wal.insert("a");
  expect(reader.read).toThrow("restarted");
});

test("continuesAt distinguishes WALs of the same length that have other contents", () => {
  using directory = makeDirectory();
  using first = makeWal(directory.at("a.db"));
  first.insert("a");
  for (const suffix of ["", "-wal", "-shm"]) {
    copyFileSync(directory.at(`a.db${suffix}`), directory.at(`b.db${suffix}`));
  }
  using second = makeWal(directory.at("b.db"));
  first.insert("b");
  second.insert("c");
  const reader = first.readWal(first.beginning());
  const { end: position } = reader.read() as WalPart;
  expect(second.readWal(position).unreadBytes()).toBe(0);
  expect(first.continuesAt(position)).toBe(true);
  expect(second.continuesAt(position)).toBe(false);
  first.insert("d");
  expect(first.continuesAt(position)).toBe(true);
  first.checkpoint();
  first.insert("e");
  expect(first.continuesAt(position)).toBe(false);
});
