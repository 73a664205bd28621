import { expect, test } from "bun:test";
import { closeSync, copyFileSync, openSync } from "node:fs";
import type { WalPart } from "../../../src/sqlite/archive/machine.ts";
import { beginningOf, continuesAt, createWalReader } from "../../../src/sqlite/disk/wal-reader.ts";
import { makeDirectory } from "../../support/directory.ts";
import { openDatabase } from "../archive/archived.ts";

function openWal(path: string) {
  const db = openDatabase(path);
  const files = { wal: openSync(`${path}-wal`, "r"), index: openSync(`${path}-shm`, "r") };
  return {
    db,
    files,
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
  using wal = openWal(directory.at("a.db"));
  const reader = createWalReader(wal.files, beginningOf(wal.files));
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
  using wal = openWal(directory.at("a.db"));
  const reader = createWalReader(wal.files, beginningOf(wal.files));
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
  using wal = openWal(directory.at("a.db"));
  const reader = createWalReader(wal.files, beginningOf(wal.files));
  wal.checkpoint();
  wal.insert("a");
  expect(reader.read).toThrow("restarted");
});

test("continuesAt distinguishes WALs of the same length that have other contents", () => {
  using directory = makeDirectory();
  using first = openWal(directory.at("a.db"));
  first.insert("a");
  for (const suffix of ["", "-wal", "-shm"]) {
    copyFileSync(directory.at(`a.db${suffix}`), directory.at(`b.db${suffix}`));
  }
  using second = openWal(directory.at("b.db"));
  first.insert("b");
  second.insert("c");
  const reader = createWalReader(first.files, beginningOf(first.files));
  const { end: position } = reader.read() as WalPart;
  expect(createWalReader(second.files, position).unreadBytes()).toBe(0);
  expect(continuesAt(first.files, position)).toBe(true);
  expect(continuesAt(second.files, position)).toBe(false);
  first.insert("d");
  expect(continuesAt(first.files, position)).toBe(true);
  first.checkpoint();
  first.insert("e");
  expect(continuesAt(first.files, position)).toBe(false);
});
