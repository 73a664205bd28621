// One contract for the files of a machine: SQLite's and those in memory get the same random steps, and show the same.
import type { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { openSync } from "node:fs";
import type {
  ArchiveMarker,
  Copy,
  DatabaseFiles,
  Progress,
  WalPart,
  WalPlace,
  WalPosition,
} from "../../src/sqlite/archive/machine.ts";
import { diskFiles } from "../../src/sqlite/disk/files.ts";
import { configure, connect } from "../../src/sqlite/file/connection.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { createHost, createScheduler, randomOf, startProcess } from "./clock.ts";
import { createDisk } from "./disk.ts";

const STEPS = 150;
const SEEDS = isLong ? 10 : 3;

/** One machine: its files, and how a server opens them. */
type Rig = ReturnType<typeof sqliteRig>;

function sqliteRig(path: string) {
  const files: DatabaseFiles = diskFiles(path, () => {});
  const openAll = (): Database => {
    const db = connect(path, true);
    configure(db);
    db.run("pragma wal_autocheckpoint = 0");
    db.run("select count(*) from sqlite_schema");
    return db;
  };
  return {
    files,
    create() {
      using db = openAll();
      db.run("create table changes (id integer primary key, type, record_id, version, created_at)");
      db.run("create table tokens (revoked_at)");
    },
    /** A server's own connection to the database. */
    connect() {
      const db = openAll();
      // The files of the WAL exist from the first transaction on.
      db.run("begin immediate");
      db.run("rollback");
      const [database = 0, wal = 0, index = 0] = ["", "-wal", "-shm"].map((suffix) =>
        openSync(path + suffix, "r+"),
      );
      return {
        open: files.open({ database, wal, index }),
        commit(word: string): void {
          const fields = "(type, record_id, version, created_at)";
          db.run(`insert into changes ${fields} values (?, 1, 1, 1)`, [word]);
        },
        words: () =>
          db
            .query<{ type: string }, []>("select type from changes order by id")
            .all()
            .map(({ type }) => type),
        close: () => db.close(true),
      };
    },
  };
}

function memoryRig(name: string): Rig {
  const host = createHost(name, randomOf(1, name), createScheduler());
  const process = startProcess(name, host);
  const disk = createDisk(host);
  const server = disk.server(process);
  const files = disk.files(process);
  return {
    files,
    create: () => server.create(),
    connect() {
      server.open();
      return {
        open: files.open({ database: 0, wal: 0, index: 0 }),
        commit: (word) => server.commit(word),
        words: () => [...disk.words()],
        close: () => server.close(),
      };
    },
  };
}

const markerOf = (file: string, isCopy: boolean): ArchiveMarker => ({
  archive: "a",
  names: ["n"],
  complete: { generation: 1, number: 1, file },
  restored: null,
  isCopy,
});

/** @returns what a caller of the ports sees in a history */
function observe(seed: number, primary: Rig, standby: Rig): unknown[] {
  const random = randomOf(seed, "steps");
  const seen: unknown[] = [];
  primary.create();
  let server = primary.connect();
  let pin = server.open.pinWal();
  let reader = server.open.readWal(server.open.beginning());
  let follower: { connection: ReturnType<Rig["connect"]>; copy: Copy; next: number } | null = null;
  /** Parts since the start of the server, each with its place. */
  const parts: { place: WalPlace; part: WalPart }[] = [];
  let last: WalPosition | null = null;
  let state = primary.files.state();
  const progresses: Progress[] = [];
  const positions: WalPosition[] = [];
  let word = 0;

  function readAll(): boolean {
    const before = parts.length;
    for (let part = reader.read(); part !== null; part = reader.read()) {
      const { salt, offset, end } = part;
      parts.push({ part, place: { salt, offset, end, previous: last } });
      last = end;
    }
    if (last !== null) positions.push(last);
    seen.push(["read", parts.length > before, reader.unreadBytes()]);
    return true;
  }

  /** The parts since the WAL was restarted. */
  function whole() {
    const first = parts.findLastIndex(({ part }) => part.offset === 0);
    return parts.slice(Math.max(0, first));
  }

  function restore(): void {
    follower?.copy[Symbol.dispose]();
    follower?.connection.close();
    if (follower !== null) standby.files.discard();
    seen.push(["is there", standby.files.bytes() > 0]);
    {
      using file = standby.files.beginRestore();
      file.beginFile();
      file.appendFile(server.open.readFile(0, server.open.fileBytes()));
      for (const { place, part } of whole()) seen.push(file.appendWal(place, part.bytes));
      // Neither another WAL nor a part that is not the next one.
      for (const salt of ["00", last?.salt ?? ""])
        seen.push(["out of place", file.appendWal({ salt, offset: 7 }, new Uint8Array(64))]);
      file.endWal();
      file.publish((found) => markerOf(found, true));
    }
    const marker = standby.files.readMarker();
    seen.push(["marker", marker?.isCopy, marker?.complete?.file === standby.files.state()]);
    using wal = standby.files.beginWal();
    for (const { part } of whole()) wal.write(part.bytes, part.offset);
    wal.publish();
    const connection = standby.connect();
    const copy = connection.open.openCopy(last);
    follower = { connection, copy, next: parts.length };
    seen.push(["restored", connection.words()]);
  }

  const steps = [
    () => server.commit(`w${++word}`),
    () => server.commit(`w${++word}`),
    readAll,
    () => seen.push(["checkpoint", pin.checkpoint(readAll)]),
    () => seen.push(["not read", pin.checkpoint(() => false)]),
    () => seen.push(["complete", pin.complete(readAll, () => seen.push("alone"))]),
    () => seen.push(["continues", positions.map((position) => server.open.continuesAt(position))]),
    () => {
      seen.push(["has changed", state !== primary.files.state()]);
      state = primary.files.state();
    },
    () => {
      using progress = server.open.openProgress();
      const others = progresses
        .filter(({ changes }) => changes > 0)
        .map((earlier) => ({ ...earlier, lastChange: "other" }));
      seen.push(["lacks", [...progresses, ...others].map((each) => progress.lacks(each))]);
      const now = progress.read();
      if (now !== null) progresses.push(now);
    },
    () => last !== null && restore(),
    () => {
      if (follower === null) return;
      const { copy } = follower;
      for (const { place, part } of parts.slice(follower.next)) {
        if (place.offset === 0) seen.push(["truncated", copy.truncateWal()]);
        const isAppended = copy.append(place, part.bytes);
        seen.push(["append", isAppended]);
        if (!isAppended) return restore();
      }
      follower.next = parts.length;
      copy.show();
      seen.push(["follows", follower.connection.words()]);
    },
    () => {
      // Later parts of this WAL cannot be appended then.
      if (follower !== null) seen.push(["emptied", follower.copy.truncateWal()]);
    },
    () => {
      readAll();
      pin[Symbol.dispose]();
      server.close();
      primary.files.writeMarker(markerOf(primary.files.state(), false));
      seen.push(["closed", primary.files.walBytes(), primary.files.readMarker()?.isCopy]);
      server = primary.connect();
      const end = last;
      seen.push(["continues", end !== null && server.open.continuesAt(end)]);
      pin = server.open.pinWal();
      reader = server.open.readWal(server.open.beginning());
      readAll();
    },
  ];
  readAll();
  for (let step = 0; step < STEPS; step += 1) steps[random(steps.length)]?.();
  seen.push(server.words());
  pin[Symbol.dispose]();
  server.close();
  return seen;
}

test("files in memory show what SQLite's show, in the same random histories", () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    using directory = makeDirectory();
    const found = observe(seed, sqliteRig(directory.at("a.db")), sqliteRig(directory.at("b.db")));
    expect({ seed, found: observe(seed, memoryRig("a"), memoryRig("b")) }).toEqual({ seed, found });
  }
});
