import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { dirname } from "node:path";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { type Base, decodeJson, encodeJson } from "../../../src/sqlite/archive/format.ts";
import { makeArchive, makeClock, openDatabase } from "./archived.ts";

const HOUR_MS = 60 * 60 * 1000;
const DAY_MS = 24 * HOUR_MS;

const continued = expect.stringContaining('"continued":true}');

test("an archive has large transactions, and what another program writes, which cannot restart the WAL", async () => {
  using archive = makeArchive();
  await using server = await archive.start();
  server.insert(1000);
  // More than one segment can hold.
  server.db.run("update t set content = randomblob(12000)");
  server.archiver.checkpoint();
  server.db.run("delete from t where n % 3 = 0");
  server.db.run("vacuum");
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

test("an archive continues in the middle of the WAL, and names another process that keeps it from being closed", async () => {
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
  other.run("insert into t (content) values ('other')");
  await using server = await archive.start();
  expect(server.lines[0]).toEqual(continued);
  server.insert(20);
  await archive.expectComplete(server);
});

test("an archive is not said to be behind for longer while there is always something to send", async () => {
  using archive = makeArchive();
  const clock = makeClock();
  const sent: (() => void)[] = [];
  let isHeld = false;
  const create: ObjectStorage["create"] = async (key, body) => {
    if (isHeld) await new Promise<void>((resolve) => sent.push(resolve));
    return archive.storage.create(key, body);
  };
  await using server = await archive.start({ clock, storage: { ...archive.storage, create } });
  await server.write(1);
  isHeld = true;
  for (let round = 0; round < 10; round += 1) {
    clock.pass(1_000);
    server.insert(5);
    // The one before is stored when the next one is on its way.
    while (sent.length < (round === 0 ? 1 : 2)) await Bun.sleep(1);
    if (round > 0) sent.shift()?.();
    await server.untilTick();
    expect(server.state().secondsBehind).toBeLessThan(3);
  }
  isHeld = false;
  sent.shift()?.();
});

test("an archive begins an upload early, so that the archive has a commit within the interval", async () => {
  using archive = makeArchive();
  const clock = makeClock();
  await using server = await archive.start({ clock, intervalMs: 4_000 });
  await server.untilComplete();
  const { length } = await archive.segments();
  server.insert();
  await clock.passSlowly(3_750);
  while ((await archive.segments()).length === length) await Bun.sleep(1);
});

test("an archive has a part of the WAL soon after a checkpoint, so that it continues after a crash", async () => {
  using archive = makeArchive();
  await using server = await archive.start({ intervalMs: HOUR_MS });
  await server.untilComplete();
  server.insert(10);
  server.archiver.checkpoint();
  // It restarts the WAL.
  server.insert();
  const written = server.content();
  while (!Bun.deepEquals(await archive.restore(), written)) await Bun.sleep(10);
});

test("an archive has a base each day, also when its server was started again, and deletes what has expired while nothing is written", async () => {
  using archive = makeArchive();
  let laterMs = 0;
  const options = { nowMs: () => Date.now() + laterMs, keepMs: 7 * DAY_MS };
  const bases = async () => (await archive.keys("bases/")).length;
  {
    await using server = await archive.start(options);
    await server.write(1);
    laterMs = 1.1 * DAY_MS;
    await archive.untilBases(2);
    await server.untilTick();
    expect(await bases()).toBe(2);
    laterMs = 9 * DAY_MS;
    while ((await bases()) > 1) await Bun.sleep(5);
    expect(await archive.restore()).toEqual(server.content());
  }
  laterMs = 10.2 * DAY_MS;
  await using server = await archive.start(options);
  expect(server.lines[0]).toEqual(continued);
  server.insert();
  await archive.untilBases(2);
});

test("an archive has a new base when more was sent since the last one than that one has", async () => {
  using archive = makeArchive();
  await archive.serve(1);
  const [key = ""] = await archive.keys("bases/");
  const base = decodeJson<Base>(key, await archive.body(key));
  await archive.storage.put(key, encodeJson({ ...base, storedBytes: 80 * 2 ** 20 }));
  // So that the next base has another name.
  await using server = await archive.start({ nowMs: () => Date.now() + HOUR_MS });
  const written = async () => new Set((await archive.keys("chunks/")).map(dirname)).size;
  // More than 64 MiB.
  server.insert(7, 10_000_000);
  await server.untilComplete();
  await server.untilTick();
  expect(await written()).toBe(1);
  server.insert(2, 10_000_000);
  while ((await written()) < 2) await Bun.sleep(1);
});
