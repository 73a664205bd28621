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

test.each([
  ["with commits that were not read", true],
  ["before its end was reached once", false],
])("read reports a gap when the WAL was restarted %s", (_when, isRead) => {
  using directory = makeDirectory();
  using wal = makeWal(directory.at("a.db"));
  const reader = wal.readWal(wal.beginning());
  if (isRead) {
    while (reader.read() !== null);
    wal.insert("lost");
  }
  wal.checkpoint();
  wal.insert("a");
  expect(reader.read).toThrow("restarted");
});

test("continuesAt distinguishes WALs of the same length that have other contents", () => {
  using directory = makeDirectory();
  using first = makeWal(directory.at("a.db"));
  first.insert("a");
  for (const suffix of ["", "-wal", "-shm"])
    copyFileSync(directory.at(`a.db${suffix}`), directory.at(`b.db${suffix}`));
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
