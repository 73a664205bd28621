// The archive of a server whose storage fails for a while.
import { describe, expect, test } from "bun:test";
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { AppError } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { watchArchive } from "../../../src/sqlite/disk/marker.ts";
import { takeServerLock } from "../../../src/sqlite/file/server-lock.ts";
import { makeUnreliable } from "../../object-storage/unreliable.ts";
import { expectRejection } from "../../support/expect-error.ts";
import {
  makeArchive,
  makeClock,
  openDatabase,
  type Server,
  serve,
  writeSegments,
} from "./archived.ts";

const HOUR_MS = 60 * 60 * 1000;

/** @returns whether the WAL no longer has all that the archive lacks */
function isLetGo({ lines }: Server): boolean {
  return lines.some((line) => line.includes("unreachable for too long"));
}

describe("an archive", () => {
  test("confirms nothing when a segment is stored after its generation has ended", async () => {
    using archive = makeArchive();
    const arrival = Promise.withResolvers<void>();
    let isLate = false;
    let late = 0;
    let arrived = 0;
    const storage: ObjectStorage = {
      ...archive.storage,
      async create(key, body) {
        if (isLate && key.startsWith("log/")) late += 1;
        if (isLate && key.startsWith("log/00000001/") && body.length > 2_000) await arrival.promise;
        if (isLate && key.startsWith("log/00000002/")) await new Promise(() => {});
        const isCreated = await archive.storage.create(key, body);
        if (isLate && key.startsWith("log/")) arrived += 1;
        return isCreated;
      },
    };
    const limit = { maxWalBytes: 2 ** 20 };
    await using server = await archive.start({ storage, ...limit });
    // More segments than the next generation has.
    for (let round = 0; round < 20; round += 1) {
      server.insert();
      await server.untilComplete();
    }
    const before = server.confirmed();
    isLate = true;
    server.insert(5);
    while (late < 1) await Bun.sleep(1);
    while (!isLetGo(server)) {
      server.insert(10, 100_000);
      server.archiver.checkpoint();
    }
    const isOpened = () => server.lines.at(-1)?.startsWith("archive opened") === true;
    while (!isOpened()) await Bun.sleep(1);
    late = 0;
    server.insert(5);
    server.archiver.committed(100);
    while (late < 1) await Bun.sleep(1);
    arrival.resolve();
    while (arrived < 1) await Bun.sleep(1);
    await Bun.sleep(20);
    expect(server.confirmed()).toBe(before);
  });

  test("goes on when the index of the WAL could not be read for a while", async () => {
    using archive = makeArchive();
    await using server = await archive.start();
    await writeSegments(server, 1);
    const index = openSync(`${archive.path}-shm`, "r+");
    const byte = new Uint8Array(1);
    // The second copy of the header, as if its writer were interrupted.
    readSync(index, byte, 0, 1, 48 + 8);
    writeSync(
      index,
      byte.map((value) => value ^ 1),
      0,
      1,
      48 + 8,
    );
    const has = (event: string) => server.lines.some((line) => line.startsWith(event));
    while (!has("database not read for the archive")) await Bun.sleep(10);
    expect(server.state().secondsBehind).toBeGreaterThan(0);
    writeSync(index, byte, 0, 1, 48 + 8);
    closeSync(index);
    while (!has("database read again for the archive")) await Bun.sleep(10);
    await writeSegments(server, 3);
    await archive.expectComplete(server);
    expect(has("archive needs a new base")).toBeFalse();
  });

  test("begins when each request of its opening has failed twice, and gives up when one fails for a minute", async () => {
    using archive = makeArchive();
    await serve(archive, 3);
    const failures = new Map<string, number>();
    let lost = "";
    const flaky =
      <Given extends [string, ...unknown[]], Result>(call: (...given: Given) => Promise<Result>) =>
      (...given: Given) => {
        const count = failures.get(`${call.name} ${given[0]}`) ?? 0;
        failures.set(`${call.name} ${given[0]}`, count + 1);
        const isFailing = count < 2 || given[0] === lost;
        return isFailing ? Promise.reject(new AppError("unavailable", "away")) : call(...given);
      };
    const { get, put, create, list } = archive.storage;
    const storage = {
      ...archive.storage,
      get: flaky(get),
      put: flaky(put),
      create: flaky(create),
      list: flaky(list),
    };
    const clock = makeClock();
    const sleep = (ms: number) => Bun.sleep(0).then(() => clock.pass(ms));
    const options = { storage, commit: "sync", clock: { ...clock, sleep } } as const;
    {
      await using server = await archive.start(options);
      expect(server.lines.some((line) => line.startsWith("archive opened"))).toBeTrue();
      expect(failures.size).toBeGreaterThan(8);
    }
    lost = "generations/00000001";
    const { message } = await expectRejection(archive.start(options), "unavailable");
    expect(message).toContain(lost);
  });

  test("waits for a minute before the next base when an error ends each generation", async () => {
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
    for (let reports = 0; reports < 20; reports += 1)
      for (const before = server.state(); server.state() === before; ) await Bun.sleep(1);
    expect(failures()).toBe(2);
    isFailing = false;
    clock.pass(60_000);
    await archive.expectComplete(server);
    expect(failures()).toBe(2);
  });

  test("begins with a new base when the WAL has become too long while the storage was unreachable", async () => {
    using archive = makeArchive();
    const { state, unreliable: storage } = makeUnreliable(archive.storage);
    await using server = await archive.start({ storage, maxWalBytes: 2 ** 20 });
    server.insert(20);
    await server.untilComplete();
    state.isAway = true;
    for (let round = 0; round < 100 && !isLetGo(server); round += 1) {
      server.insert(10, 100_000);
      server.archiver.checkpoint();
    }
    expect(isLetGo(server)).toBe(true);
    const { log, checkpointed } = server.db.prepare("pragma wal_checkpoint(noop)").get() as {
      log: number;
      checkpointed: number;
    };
    expect(checkpointed).toBe(log);
    // Nothing can be restored that is as new as the WAL.
    while (server.state().bytesBehind === 0) await Bun.sleep(1);
    expect(server.state().secondsBehind).toBeGreaterThan(0);
    server.insert(20);
    state.isAway = false;
    await archive.expectComplete(server);
    expect((await archive.storage.list("bases/")).length).toBe(2);
  });

  test("is not said to have a write when a server starts, until it has that", async () => {
    using archive = makeArchive();
    await serve(archive, 1);
    using command = openDatabase(archive.path);
    command.run("insert into t (content) values ('other')");
    using _lock = takeServerLock(archive.path, 0);
    const { state, unreliable: storage } = makeUnreliable(archive.storage);
    state.isAway = true;
    const untilArchived = watchArchive(archive.path)().then((has) => [has, state.isAway]);
    await using _server = await archive.start({ storage });
    await Bun.sleep(100);
    state.isAway = false;
    expect(await untilArchived).toEqual([true, false]);
  });

  test("is behind while it has no base, although it has the WAL", async () => {
    using archive = makeArchive();
    let isFailing = true;
    const storage: ObjectStorage = {
      ...archive.storage,
      async put(key, body) {
        if (isFailing && key.startsWith("chunks/")) throw new AppError("unavailable", "no chunks");
        return archive.storage.put(key, body);
      },
    };
    await using server = await archive.start({ storage });
    for (let round = 0; round < 5; round += 1) {
      server.insert(5);
      await Bun.sleep(20);
    }
    while ((await archive.storage.list("log/")).length === 0) await Bun.sleep(1);
    while (server.state().bytesBehind > 0) await Bun.sleep(1);
    await Bun.sleep(50);
    expect(server.state().secondsBehind).toBeGreaterThan(0.1);
    // Segments that are stored say nothing about the base.
    expect(server.lines.slice(1)).toEqual(['archive base not written {"reason":"no chunks"}']);
    isFailing = false;
    await server.untilComplete();
    while (server.state().secondsBehind > 0) await Bun.sleep(1);
    expect(server.state()).toMatchObject({ secondsBehind: 0, bytesBehind: 0 });
  });

  test("says that it cannot delete, and tries again after an hour", async () => {
    using archive = makeArchive();
    let laterMs = 0;
    let isFailing = true;
    const storage: ObjectStorage = {
      ...archive.storage,
      async list(prefix, ...rest) {
        if (isFailing && prefix === "chunks/") throw new AppError("unavailable", "no list");
        return archive.storage.list(prefix, ...rest);
      },
    };
    const nowMs = () => Date.now() + laterMs;
    await using server = await archive.start({ storage, nowMs, keepMs: 0 });
    await server.untilComplete();
    laterMs = HOUR_MS;
    while (server.lines.length < 3) await Bun.sleep(5);
    expect(server.lines[2]).toBe('expired archive objects not deleted {"reason":"no list"}');
    expect(server.state()).toMatchObject({ secondsBehind: 0 });
    isFailing = false;
    await Bun.sleep(50);
    expect(server.lines.length).toBe(3);
    laterMs = 2 * HOUR_MS;
    while (server.lines.length < 4) await Bun.sleep(5);
    expect(server.lines[3]).toBe("expired archive objects deleted again {}");
  });
});
