import { Database } from "bun:sqlite";
import { readFileSync } from "node:fs";
import { createReader } from "../../src/sqlite/engine/reader.ts";
import { createWriteBatch } from "../../src/sqlite/engine/write-batch.ts";
import { createWriter } from "../../src/sqlite/engine/writer.ts";
import { type Checkpointer, createCheckpointer } from "../../src/sqlite/file/checkpoint.ts";
import { watchFiles } from "../../src/sqlite/file/file-watch.ts";
import { makeDirectory } from "../support/directory.ts";

export function makeWriter(change = (checkpoints: Checkpointer) => checkpoints) {
  const directory = makeDirectory();
  const path = directory.at("a.db");
  const db = new Database(path, { create: true, strict: true });
  db.run("pragma journal_mode = wal");
  db.run("pragma foreign_keys = on");
  db.run("create table t (n integer primary key check (n < 1000), content blob)");
  // Checked only at commit, so that a test can make a commit fail.
  db.run("create table late (n integer references t (n) deferrable initially deferred)");
  // `commits` counts those of the test.
  db.run("pragma wal_checkpoint(truncate)");
  const other = new Database(path, { strict: true });
  const files = watchFiles(path, () => {}, null);
  const checkpoints = change(createCheckpointer(db, files));
  const reader = createReader(db);
  let timeMs = 0;
  let clockReads = 0;
  /** What the gate gets. */
  const attempts: string[] = [];
  const writer = createWriter({
    batch: createWriteBatch(db, files),
    reader,
    checkpointer: checkpoints,
    onCommit: () => {},
    gate: {
      begin: () => void attempts.push("begin"),
      confirm() {
        attempts.push("committed");
        return null;
      },
      failed: (isOfDisk) => void attempts.push(isOfDisk ? "failed on the disk" : "failed"),
    },
    nowMs: () => {
      clockReads += 1;
      return timeMs;
    },
  });
  const all = other.prepare<{ n: number }, []>("select n from t order by n");
  return {
    path,
    directory,
    db,
    other,
    files,
    reader,
    attempts,
    idle: writer.idle,
    write: writer.write.bind(null, "t"),
    pass(ms: number) {
      timeMs += ms;
    },
    clockReads: () => clockReads,
    insert: (n: number, bytes = 0) =>
      db.run("insert into t (n, content) values (?, zeroblob(?))", [n, bytes]),
    add: (bytes: number) => db.run("insert into t (content) values (zeroblob(?))", [bytes]),
    visible: () => all.all().map(({ n }) => n),
    /** @returns the number of commits in the write-ahead log @see https://sqlite.org/fileformat2.html#walformat */
    commits() {
      const wal = readFileSync(`${path}-wal`);
      const frameSize = 24 + wal.readUInt32BE(8);
      let commits = 0;
      for (let at = 32; at < wal.length; at += frameSize) {
        // The size of the database after a commit; 0 in any other frame.
        if (wal.readUInt32BE(at + 4) > 0) commits += 1;
      }
      return commits;
    },
    [Symbol.dispose]() {
      checkpoints.close();
      other.close();
      db.close();
      files.close();
      directory[Symbol.dispose]();
    },
  };
}
