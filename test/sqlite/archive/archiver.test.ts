import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { dirname } from "node:path";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { DIVERGED } from "../../../src/sqlite/archive/context.ts";
import {
  type Base,
  decodeHead,
  decodeJson,
  encodeJson,
} from "../../../src/sqlite/archive/format.ts";
import { parseKey } from "../../../src/sqlite/archive/keys.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";
import { expectRejection } from "../../support/expect-error.ts";
import {
  contentOf,
  makeArchive,
  makeClock,
  openDatabase,
  serve,
  writeSegments,
} from "./archived.ts";

const HOUR_MS = 60 * 60 * 1000;
const DAY_MS = 24 * HOUR_MS;

const opened = (continued: boolean) => expect.stringContaining(`"continued":${continued}}`);

describe("an archive", () => {
  test("has updates, deletes and large transactions", async () => {
    using archive = makeArchive();
    await using server = await archive.start();
    server.insert(1000);
    // More than one segment can hold.
    server.db.run("update t set content = randomblob(12000)");
    server.archiver.checkpoint();
    server.db.run("delete from t where n % 3 = 0");
    server.db.run("vacuum");
    await archive.expectComplete(server);
  });

  test("continues without a base when the database was closed and opened again", async () => {
    using archive = makeArchive();
    for (let start = 0; start < 3; start += 1) {
      await using server = await archive.start();
      server.insert(20);
      if (start === 0) await server.untilComplete();
      expect(server.lines[0]).toEqual(opened(start > 0));
    }
    using db = new Database(archive.path);
    expect(await archive.restore()).toEqual(contentOf(db));
    expect((await archive.storage.list("bases/")).length).toBe(1);
  });

  test("continues in the middle of the WAL when another process has kept it", async () => {
    using archive = makeArchive();
    using other = openDatabase(archive.path);
    await serve(archive, 1);
    other.run("insert into t (content) values ('other')");
    await using server = await archive.start();
    expect(server.lines[0]).toEqual(opened(true));
    server.insert(20);
    await archive.expectComplete(server);
  });

  test("names another process that keeps it from being closed", async () => {
    using archive = makeArchive();
    using other = openDatabase(archive.path);
    const lines: string[] = [];
    {
      await using server = await archive.start();
      await server.untilComplete();
      other.run("begin");
      other.prepare("select count(*) from t").get();
      server.insert();
      await server.archiver.close();
      lines.push(...server.lines);
    }
    other.run("commit");
    expect(lines.at(-1)).toStartWith('archive not complete {"reason":"another process uses');
    await using server = await archive.start();
    expect(server.lines[0]).toEqual(opened(true));
  });

  test("begins with a new base when another program has written meanwhile", async () => {
    using archive = makeArchive();
    await serve(archive, 1);
    {
      using other = new Database(archive.path);
      other.run("insert into t (content) values ('other')");
    }
    await using server = await archive.start();
    expect(server.lines[0]).toEqual(opened(false));
    server.insert(20);
    await archive.expectComplete(server);
  });

  test("has what another program writes, which cannot restart the WAL", async () => {
    using archive = makeArchive();
    await using server = await archive.start();
    server.insert(20);
    await server.untilComplete();
    using other = new Database(archive.path);
    for (let at = 0; at < 50; at += 1) {
      other.run("insert into t (content) values (randomblob(3000))");
      other.run("pragma wal_checkpoint(truncate)");
      if (at % 10 === 0) server.archiver.checkpoint();
      await Bun.sleep(1);
    }
    await archive.expectComplete(server);
    expect(server.lines.length).toBe(2);
  });

  test("is not said to be behind while there is always something to send", async () => {
    using archive = makeArchive();
    const memory = createMemoryStorage();
    const storage: ObjectStorage = {
      ...memory,
      async create(key, body) {
        await Bun.sleep(20);
        return memory.create(key, body);
      },
    };
    await using server = await archive.start({ storage });
    await server.untilComplete();
    const startedMs = performance.now();
    const behind: number[] = [];
    for (let round = 0; round < 60; round += 1) {
      server.insert(5);
      await Bun.sleep(10);
      behind.push(server.state().secondsBehind);
    }
    const elapsedSeconds = (performance.now() - startedMs) / 1000;
    expect(Math.min(...behind.slice(-20))).toBeLessThan(elapsedSeconds / 2);
  });

  test("begins an upload early, so that the archive has a commit within the interval", async () => {
    using archive = makeArchive();
    const intervalMs = 4_000;
    let readMs = 0;
    const storage: ObjectStorage = {
      ...archive.storage,
      create(key, body) {
        const slot = parseKey(key);
        if (slot !== null) readMs = decodeHead(slot, body).timeMs;
        return archive.storage.create(key, body);
      },
    };
    await using server = await archive.start({ storage, intervalMs });
    await server.untilComplete();
    // The longest wait begins with an upload, at which the state is reported.
    const before = server.state();
    while (server.state() === before) await Bun.sleep(1);
    const writtenMs = Date.now();
    server.insert();
    while (readMs < writtenMs) await Bun.sleep(1);
    expect(readMs - writtenMs).toBeLessThan(intervalMs);
  });

  test("has a part of the WAL soon after a checkpoint, so that it continues after a crash", async () => {
    using archive = makeArchive();
    await using server = await archive.start({ intervalMs: 3_600_000 });
    await server.untilComplete();
    server.insert(10);
    server.archiver.checkpoint();
    // It restarts the WAL.
    server.insert();
    const written = contentOf(server.db);
    while (!Bun.deepEquals(await archive.restore(), written)) await Bun.sleep(10);
  });

  test("deletes what has expired, also while nothing is written", async () => {
    using archive = makeArchive();
    let laterMs = 0;
    const nowMs = () => Date.now() + laterMs;
    const options = { nowMs, keepMs: 7 * DAY_MS };
    await using server = await archive.start(options);
    await server.untilComplete();
    server.insert(20);
    await server.untilComplete();
    const bases = async () => (await archive.keys("bases/")).length;
    laterMs = 1.1 * DAY_MS;
    await archive.untilBases(2);
    await Bun.sleep(50);
    expect(await bases()).toBe(2);
    laterMs = 9 * DAY_MS;
    while ((await bases()) > 1) await Bun.sleep(5);
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("deletes nothing while the clock is ahead, and has a base with the right time afterwards", async () => {
    using archive = makeArchive();
    const clock = makeClock();
    let nowMs = Date.parse("2026-11-01T00:00:00Z");
    await using server = await archive.start({ nowMs: () => nowMs, clock, keepMs: 7 * DAY_MS });
    await writeSegments(server, 1);
    clock.pass(1.1 * DAY_MS);
    nowMs += 1.1 * DAY_MS;
    await writeSegments(server, 1);
    await archive.untilBases(2);
    // Only the first step back has a base: two programs may set the clock by turns.
    for (let step = 0; step < 20; step += 1) {
      nowMs += 40 * DAY_MS;
      await writeSegments(server, 1);
      nowMs -= 40 * DAY_MS;
      await server.untilComplete();
      await archive.untilBases(3);
    }
    await writeSegments(server, 1);
    expect(await archive.restore(new Date(nowMs))).toEqual(contentOf(server.db));
    expect(await archive.keys("bases/")).toHaveLength(3);
  });

  test("has a base each day, also when its server was started again since", async () => {
    using archive = makeArchive();
    await serve(archive, 2);
    const nowMs = () => Date.now() + 1.1 * DAY_MS;
    await using server = await archive.start({ nowMs });
    expect(server.lines[0]).toEqual(opened(true));
    server.insert();
    await archive.untilBases(2);
  });

  test.each([
    ["has a new base when more was sent since the last one than that one has", 1, 2],
    ["has no new base when the last one is larger than what was sent since", 300 * 2 ** 20, 1],
  ])("%s", async (_title, storedBytes, bases) => {
    using archive = makeArchive();
    await serve(archive, 1);
    const [key = ""] = await archive.keys("bases/");
    const base = decodeJson<Base>(key, await archive.body(key));
    await archive.storage.put(key, encodeJson({ ...base, storedBytes }));
    // So that the next base has another name.
    await using server = await archive.start({ nowMs: () => Date.now() + HOUR_MS });
    server.insert(7, 10_000_000);
    await server.untilComplete();
    await Bun.sleep(100);
    await archive.untilBases(bases);
    expect(new Set((await archive.keys("chunks/")).map(dirname)).size).toBe(bases);
  });

  test("is rejected when it belongs to another database", async () => {
    using archive = makeArchive();
    await serve(archive, 1);
    const other = archive.start({ path: archive.at("b.db") });
    await expectRejection(other, "operator", /^the archive belongs to another database: /);
    rmSync(`${archive.path}-archive`);
    const unmarked = archive.start();
    await expectRejection(unmarked, "operator", /^the archive belongs to another database: /);
    // Two new machines may have started in the same moment: this one sets its database aside.
    const slower = await expectRejection(archive.start({ standby: true }), "operator");
    expect(slower.cause).toBe(DIVERGED);
  });
});
