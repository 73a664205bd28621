// The archive of a server whose storage fails for a while.
import { expect, test } from "bun:test";
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { AppError } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { watchArchive } from "../../../src/sqlite/disk/marker.ts";
import { takeServerLock } from "../../../src/sqlite/file/server-lock.ts";
import { wrapStorage } from "../../object-storage/memory.ts";
import { makeArchive, makeClock, openDatabase } from "./archived.ts";

const HOUR_MS = 60 * 60 * 1000;

/** @param prefix of the keys whose calls fail while the storage is away */
function makeUnreliable(archive: ObjectStorage, prefix = "") {
  const state = { isAway: false };
  const storage = wrapStorage(archive, async (call, operation, key) => {
    const isAway = state.isAway && operation !== "remove" && key.startsWith(prefix);
    if (isAway) throw new AppError("unavailable", "away");
    return await call();
  });
  return { state, storage };
}

test("an archive goes on when the index of the WAL could not be read for a while", async () => {
  using archive = makeArchive();
  await using server = await archive.start();
  await server.write(1);
  const index = openSync(`${archive.path}-shm`, "r+");
  const byte = new Uint8Array(1);
  // The second copy of the header, as if its writer were interrupted.
  const at = 48 + 8;
  readSync(index, byte, 0, 1, at);
  writeSync(index, Uint8Array.of((byte[0] ?? 0) ^ 1), 0, 1, at);
  await server.untilLine("database not read for the archive");
  expect(server.state().secondsBehind).toBeGreaterThan(0);
  writeSync(index, byte, 0, 1, at);
  closeSync(index);
  await server.untilLine("database read again for the archive");
  await server.write(3);
  await archive.expectComplete(server);
  expect(server.lines.join()).not.toContain("archive needs a new base");
});

test("an archive begins when each request of its opening has failed twice", async () => {
  using archive = makeArchive();
  await archive.serve(3);
  const failures = new Map<string, number>();
  const storage = wrapStorage(archive.storage, async (call, operation, key) => {
    const count = failures.get(`${operation} ${key}`) ?? 0;
    failures.set(`${operation} ${key}`, count + 1);
    if (count < 2) throw new AppError("unavailable", "away");
    return await call();
  });
  await using server = await archive.start({ storage, commit: "sync", clock: makeClock() });
  await server.untilLine("archive opened");
  expect(failures.size).toBeGreaterThan(8);
});

test("an archive waits for a minute before the next base when an error ends each generation", async () => {
  using archive = makeArchive();
  const clock = makeClock();
  let isFailing = true;
  const create: ObjectStorage["create"] = (key, body) => {
    if (isFailing && key.startsWith("log/") && body.length > 1_000) throw new TypeError("broken");
    return archive.storage.create(key, body);
  };
  await using server = await archive.start({ clock, storage: { ...archive.storage, create } });
  await server.untilComplete();
  const failures = () => server.lines.filter((line) => line.includes("needs a new base")).length;
  while (failures() < 2) {
    server.insert(5, 5_000);
    server.archiver.committed(1);
    await Bun.sleep(1);
  }
  for (let reports = 0; reports < 10; reports += 1) await server.untilTick();
  expect(failures()).toBe(2);
  isFailing = false;
  clock.pass(60_000);
  await archive.expectComplete(server);
  expect(failures()).toBe(2);
});

test("an archive begins with a new base when the WAL has become too long while the storage was unreachable", async () => {
  using archive = makeArchive();
  const { state, storage } = makeUnreliable(archive.storage);
  const clock = makeClock();
  await using server = await archive.start({ storage, clock, maxWalBytes: 2 ** 20 });
  server.insert(20);
  await server.untilComplete();
  state.isAway = true;
  // Until the WAL no longer has all that the archive lacks.
  while (!server.lines.join().includes("unreachable for too long")) {
    server.db.run("update t set content = randomblob(2000000) where n = 1");
    server.archiver.checkpoint();
  }
  const { log, checkpointed } = server.db.prepare("pragma wal_checkpoint(noop)").get() as {
    log: number;
    checkpointed: number;
  };
  expect(checkpointed).toBe(log);
  // Nothing can be restored that is as new as the WAL.
  clock.pass(1_000);
  await server.untilTick();
  const { secondsBehind, bytesBehind } = server.state();
  expect([secondsBehind > 0, bytesBehind > 0]).toEqual([true, true]);
  server.db.run("update t set content = 'short'");
  state.isAway = false;
  await archive.expectComplete(server);
  expect((await archive.storage.list("bases/")).length).toBe(2);
});

test("an archive is not said to have a write when a server starts, until it has that", async () => {
  using archive = makeArchive();
  await archive.serve(1);
  using command = openDatabase(archive.path);
  command.run("insert into t (content) values ('other')");
  using _lock = takeServerLock(archive.path, "exclusive", 0);
  const { state, storage } = makeUnreliable(archive.storage);
  state.isAway = true;
  const untilArchived = watchArchive(archive.path)().then((has) => [has, state.isAway]);
  await using server = await archive.start({ storage });
  await server.untilTick();
  state.isAway = false;
  expect(await untilArchived).toEqual([true, false]);
});

test("an archive is behind while it has no base, although it has the WAL", async () => {
  using archive = makeArchive();
  const clock = makeClock();
  const { state, storage } = makeUnreliable(archive.storage, "chunks/");
  state.isAway = true;
  await using server = await archive.start({ clock, storage });
  server.insert(5);
  // That of the table, and that of the rows.
  while ((await archive.segments()).length < 2) await Bun.sleep(1);
  clock.pass(1_000);
  await server.untilTick();
  expect(server.state()).toMatchObject({ secondsBehind: 1, bytesBehind: 0 });
  // Segments that are stored say nothing about the base.
  expect(server.lines.slice(1)).toEqual(['archive base not written {"reason":"away"}']);
  state.isAway = false;
  await server.untilComplete();
  await server.untilTick();
  expect(server.state()).toMatchObject({ secondsBehind: 0, bytesBehind: 0 });
});

test("an archive says that it cannot delete, and tries again after an hour", async () => {
  using archive = makeArchive();
  let laterMs = 0;
  const { state, storage } = makeUnreliable(archive.storage, "chunks/");
  const nowMs = () => Date.now() + laterMs;
  await using server = await archive.start({ storage, nowMs, keepMs: 0 });
  await server.untilComplete();
  await archive.untilBases(1);
  state.isAway = true;
  laterMs = HOUR_MS;
  await server.untilLine("expired archive objects not deleted");
  expect(server.state()).toMatchObject({ secondsBehind: 0 });
  state.isAway = false;
  await server.untilTick();
  expect(server.lines.at(-1)).toBe('expired archive objects not deleted {"reason":"away"}');
  laterMs = 2 * HOUR_MS;
  await server.untilLine("expired archive objects deleted again");
});
