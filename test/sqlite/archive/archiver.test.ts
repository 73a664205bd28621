import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { AppError } from "../../../src/error.ts";
import type { ObjectStorage } from "../../../src/object-storage.ts";
import { expectRejection } from "../../expect-error.ts";
import { contentOf, makeArchive, makeLease, openDatabase } from "./archived.ts";

const HOUR_MS = 60 * 60 * 1000;
const DAY_MS = 24 * HOUR_MS;

/** The storage, of which operations can fail. */
function unreliable(storage: ObjectStorage) {
  let problem: string | null = null;
  const guard = <Given extends unknown[], Result>(work: (...args: Given) => Promise<Result>) => {
    return async (...args: Given) => {
      if (problem !== null) throw new AppError("unavailable", problem);
      return work(...args);
    };
  };
  return {
    fail(reason: string | null) {
      problem = reason;
    },
    storage: {
      ...storage,
      get: guard(storage.get),
      put: guard(storage.put),
      create: guard(storage.create),
      list: guard(storage.list),
    },
  };
}

const opened = (continued: boolean) => expect.stringContaining(`"continued":${continued}}`);

describe("an archive", () => {
  test("has all commits when they were confirmed, across checkpoints", async () => {
    using archive = makeArchive();
    await using server = await archive.start();
    for (let round = 0; round < 5; round += 1) {
      server.insert(200, 5000);
      await Bun.sleep(5);
      server.archiver.checkpoint();
      server.insert(1);
    }
    await archive.expectComplete(server);
    expect(server.lines.filter((line) => line.startsWith("archive needs"))).toEqual([]);
  });

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
    {
      await using server = await archive.start();
      server.insert(20);
      await server.untilComplete();
    }
    other.run("insert into t (content) values ('other')");
    await using server = await archive.start();
    expect(server.lines[0]).toEqual(opened(true));
    server.insert(20);
    await archive.expectComplete(server);
  });

  test("begins with a new base when another program has written meanwhile", async () => {
    using archive = makeArchive();
    {
      await using server = await archive.start();
      server.insert(20);
      await server.untilComplete();
    }
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
    const storage: ObjectStorage = {
      ...archive.storage,
      async put(key, body) {
        await Bun.sleep(20);
        return archive.storage.put(key, body);
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
    const intervalMs = 2_000;
    let storedMs = 0;
    const storage: ObjectStorage = {
      ...archive.storage,
      async put(key, body) {
        await archive.storage.put(key, body);
        storedMs = performance.now();
      },
    };
    await using server = await archive.start({ storage, intervalMs });
    await server.untilComplete();
    // The longest wait begins with an upload, at which the state is reported.
    const before = server.state();
    while (server.state() === before) await Bun.sleep(1);
    const writtenMs = performance.now();
    server.insert();
    while (storedMs < writtenMs) await Bun.sleep(1);
    expect(storedMs - writtenMs).toBeLessThan(intervalMs);
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

  test("confirms nothing when a segment is stored after its generation has ended", async () => {
    using archive = makeArchive();
    const arrival = Promise.withResolvers<void>();
    let isLate = false;
    let late = 0;
    let arrived = 0;
    const storage: ObjectStorage = {
      ...archive.storage,
      async put(key, body) {
        if (isLate && key.startsWith("log/")) late += 1;
        if (isLate && key.startsWith("log/00000001/")) await arrival.promise;
        if (isLate && key.startsWith("log/00000002/")) await new Promise(() => {});
        await archive.storage.put(key, body);
        if (isLate && key.startsWith("log/")) arrived += 1;
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
    const isLetGo = () => server.lines.some((line) => line.includes("unreachable for too long"));
    while (!isLetGo()) {
      server.insert(100, 100_000);
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
  }, 30_000);

  test("is complete again after the storage was unreachable", async () => {
    using archive = makeArchive();
    const { storage, fail } = unreliable(archive.storage);
    await using server = await archive.start({ storage });
    server.insert(20);
    await server.untilComplete();
    const before = contentOf(server.db);
    fail("the storage is unreachable");
    for (let round = 0; round < 10; round += 1) {
      server.insert(50, 5000);
      server.archiver.checkpoint();
      await Bun.sleep(20);
    }
    expect(server.lines).toContain('archive not written {"reason":"the storage is unreachable"}');
    expect(server.state().bytesBehind).toBeGreaterThan(1_000_000);
    expect(server.state().secondsBehind).toBeGreaterThan(0);
    expect(await archive.restore()).toEqual(before);
    fail(null);
    await archive.expectComplete(server);
    while (server.state().bytesBehind > 0) await Bun.sleep(1);
    expect(server.state()).toMatchObject({ secondsBehind: 0 });
    expect(server.lines).toContain("archive written again {}");
    // The same log: no new base.
    expect((await archive.storage.list("bases/")).length).toBe(1);
  });

  test("begins with a new base when the WAL has become too long while the storage was unreachable", async () => {
    using archive = makeArchive();
    const { storage, fail } = unreliable(archive.storage);
    await using server = await archive.start({ storage, maxWalBytes: 2 ** 20 });
    server.insert(20);
    await server.untilComplete();
    fail("the storage is unreachable");
    const isLetGo = () => server.lines.some((line) => line.includes("unreachable for too long"));
    for (let round = 0; round < 100 && !isLetGo(); round += 1) {
      server.insert(100, 10_000);
      server.archiver.checkpoint();
    }
    expect(isLetGo()).toBe(true);
    const { log, checkpointed } = server.db.prepare("pragma wal_checkpoint(noop)").get() as {
      log: number;
      checkpointed: number;
    };
    expect(checkpointed).toBe(log);
    // Nothing can be restored that is as new as the WAL.
    while (server.state().bytesBehind === 0) await Bun.sleep(1);
    expect(server.state().secondsBehind).toBeGreaterThan(0);
    server.insert(20);
    fail(null);
    await archive.expectComplete(server);
    expect((await archive.storage.list("bases/")).length).toBe(2);
  });

  test("begins with a base when the WAL is let go after the response to its generation was lost", async () => {
    using archive = makeArchive();
    let before: unknown;
    {
      await using server = await archive.start();
      server.insert(20);
      await server.untilComplete();
      before = contentOf(server.db);
    }
    const { storage, fail } = unreliable(archive.storage);
    const isSecond = (key: string) => key === "generations/00000002";
    const lossy: ObjectStorage = {
      ...storage,
      async create(key, body) {
        const tag = await storage.create(key, body);
        if (isSecond(key)) fail("the storage is unreachable");
        return isSecond(key) ? null : tag;
      },
    };
    await using server = await archive.start({ storage: lossy, maxWalBytes: 2 ** 20 });
    for (let round = 0; round < 10; round += 1) {
      server.insert(100, 10_000);
      server.archiver.checkpoint();
    }
    server.insert(20);
    fail(null);
    await server.untilComplete();
    expect(server.lines).toContainEqual(opened(false));
    expect(await archive.restore()).toEqual(contentOf(server.db));
    // Nothing but the new base has what was in the WAL.
    const [, base = ""] = (await archive.storage.list("bases/")).map(({ key }) => key);
    await archive.storage.remove([base]);
    expect(await archive.restore()).toEqual(before);
  });

  test("begins when the storage responds, if it is unreachable at the start", async () => {
    using archive = makeArchive();
    const { storage, fail } = unreliable(archive.storage);
    fail("the storage is unreachable");
    await using server = await archive.start({ storage });
    server.insert(20);
    server.archiver.checkpoint();
    expect(server.lines).toEqual(['archive not opened {"reason":"the storage is unreachable"}']);
    fail(null);
    await archive.expectComplete(server);
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

  test("keeps the problem of its lease apart from what it stores", async () => {
    using archive = makeArchive();
    await using server = await archive.start();
    await server.untilComplete();
    server.archiver.reportLease(new AppError("unavailable", "no answer"));
    server.insert(5);
    await server.untilComplete();
    await Bun.sleep(30);
    expect(server.state()).toMatchObject({ secondsBehind: 0 });
    server.archiver.reportLease(null);
    expect(server.lines.slice(2)).toEqual([
      'archive lease not written {"reason":"no answer"}',
      "archive lease written again {}",
    ]);
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
    const bases = async () => (await archive.storage.list("bases/")).length;
    laterMs = 1.1 * DAY_MS;
    while ((await bases()) < 2) await Bun.sleep(5);
    await Bun.sleep(50);
    expect(await bases()).toBe(2);
    laterMs = 9 * DAY_MS;
    while ((await bases()) > 1) await Bun.sleep(5);
    expect(await archive.restore()).toEqual(contentOf(server.db));
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
    await using server = await archive.start({ storage, nowMs });
    await server.untilComplete();
    while (server.lines.length < 3) await Bun.sleep(5);
    expect(server.lines[2]).toBe('expired archive objects not deleted {"reason":"no list"}');
    expect(server.state()).toMatchObject({ secondsBehind: 0 });
    isFailing = false;
    await Bun.sleep(50);
    expect(server.lines.length).toBe(3);
    laterMs = HOUR_MS;
    while (server.lines.length < 4) await Bun.sleep(5);
    expect(server.lines[3]).toBe("expired archive objects deleted again {}");
  });

  test("has a base each day, also when its server was started again since", async () => {
    using archive = makeArchive();
    {
      await using server = await archive.start();
      await server.untilComplete();
      server.insert(20);
      await server.untilComplete();
    }
    const nowMs = () => Date.now() + 1.1 * DAY_MS;
    await using server = await archive.start({ nowMs });
    expect(server.lines[0]).toEqual(opened(true));
    while ((await archive.storage.list("bases/")).length < 2) await Bun.sleep(5);
  });

  test.each([
    ["has a new base when more was sent since the last one than that one has", 1, 2],
    ["has no new base when the last one is larger than what was sent since", 300 * 2 ** 20, 1],
  ])("%s, also when its server was started again", async (_title, chunkBytes, bases) => {
    using archive = makeArchive();
    // As if each object were so large when it is listed.
    const sizes = { "log/": 60 * 2 ** 20, "chunks/": chunkBytes };
    const storage: ObjectStorage = {
      ...archive.storage,
      async list(prefix, ...rest) {
        const objects = await archive.storage.list(prefix, ...rest);
        const size = Object.entries(sizes).find(([start]) => prefix.startsWith(start))?.[1];
        return objects.map((object) => ({ ...object, bytes: size ?? object.bytes }));
      },
    };
    {
      await using server = await archive.start({ storage });
      await server.untilComplete();
      for (let round = 0; round < 2; round += 1) {
        server.insert(5);
        await server.untilComplete();
      }
    }
    // So that the next base has another name.
    const nowMs = () => Date.now() + HOUR_MS;
    await using server = await archive.start({ storage, nowMs });
    expect(server.lines[0]).toEqual(opened(true));
    await server.untilComplete();
    await Bun.sleep(100);
    expect((await archive.storage.list("bases/")).length).toBe(bases);
  });

  test("says that its lease was deleted", async () => {
    using archive = makeArchive();
    const lost = Promise.withResolvers<string | null>();
    const lease = makeLease(1, { whenLost: lost.promise });
    await using server = await archive.start({ lease });
    await server.untilComplete();
    lost.resolve(null);
    while (!server.isLost()) await Bun.sleep(1);
    expect(server.lines.at(-1)).toBe('archive lost {"reason":"the object `lease` was deleted"}');
  });

  test("restores the state of each moment", async () => {
    using archive = makeArchive();
    await using server = await archive.start();
    await server.untilComplete();
    const states: [Date, unknown][] = [];
    for (let at = 0; at < 10; at += 1) {
      await Bun.sleep(2);
      server.insert(10);
      if (at % 3 === 0) server.archiver.checkpoint();
      await server.untilComplete();
      await Bun.sleep(2);
      states.push([new Date(), contentOf(server.db)]);
    }
    for (const [time, content] of states) expect(await archive.restore(time)).toEqual(content);
    const early = archive.restore(new Date(1000));
    await expectRejection(early, "operator", /^the archive begins at 2/);
  });

  test("confirms nothing while its server does not hold the lease", async () => {
    using archive = makeArchive();
    let held = true;
    const lost = Promise.withResolvers<string>();
    const lease = makeLease(1, { isHeld: () => held, whenLost: lost.promise });
    await using server = await archive.start({ lease });
    await server.untilComplete();
    held = false;
    server.insert(10);
    server.archiver.committed(100);
    while ((await archive.storage.list("log/")).length < 2) await Bun.sleep(1);
    while (server.state().bytesBehind > 0) await Bun.sleep(1);
    expect(server.confirmed()).toBeLessThan(100);
    held = true;
    while (server.confirmed() < 100) await Bun.sleep(1);
    lost.resolve("another host");
    while (!server.isLost()) await Bun.sleep(1);
    server.insert(10);
    server.archiver.committed(200);
    await Bun.sleep(50);
    expect(server.confirmed()).toBe(100);
    expect(server.lines.at(-1)).toBe(
      'archive lost {"reason":"another host has taken over the archive"}',
    );
  });

  test("is not continued with a lease that is older than its newest generation", async () => {
    using archive = makeArchive();
    {
      await using server = await archive.start();
      await server.untilComplete();
    }
    const late = archive.start({ lease: makeLease(1) });
    await expectRejection(late, "operator", /^another server has continued the archive: /);
  });

  test("is rejected when it belongs to another database", async () => {
    using archive = makeArchive();
    {
      await using server = await archive.start();
      await server.untilComplete();
    }
    const other = archive.start({ path: archive.at("b.db") });
    await expectRejection(other, "operator", /^the archive belongs to another database: /);
    rmSync(`${archive.path}-archive`);
    const unmarked = archive.start();
    await expectRejection(unmarked, "operator", /^the archive belongs to another database: /);
  });
});
