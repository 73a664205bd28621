import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { AppError } from "../../../src/error.ts";
import type { ObjectStorage } from "../../../src/object-storage.ts";
import { expectRejection } from "../../expect-error.ts";
import { contentOf, makeArchive, openDatabase, startArchived } from "./archived.ts";

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
      getWithTag: guard(storage.getWithTag),
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
    await using server = await startArchived(archive.path, archive.storage);
    for (let round = 0; round < 5; round += 1) {
      server.insert(200, 5000);
      await Bun.sleep(5);
      server.archiver.checkpoint();
      server.insert(1);
    }
    await server.untilComplete();
    expect(await archive.restore()).toEqual(contentOf(server.db));
    expect(server.lines.filter((line) => line.startsWith("archive needs"))).toEqual([]);
  });

  test("has updates, deletes and large transactions", async () => {
    using archive = makeArchive();
    await using server = await startArchived(archive.path, archive.storage);
    server.insert(1000);
    // More than one segment can hold.
    server.db.run("update t set content = randomblob(12000)");
    server.archiver.checkpoint();
    server.db.run("delete from t where n % 3 = 0");
    server.db.run("vacuum");
    await server.untilComplete();
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("continues without a base when the database was closed and opened again", async () => {
    using archive = makeArchive();
    for (let start = 0; start < 3; start += 1) {
      await using server = await startArchived(archive.path, archive.storage);
      server.insert(20);
      if (start === 0) await server.untilComplete();
      expect(server.lines[0]).toEqual(opened(start > 0));
    }
    using db = new Database(archive.path);
    expect(await archive.restore()).toEqual(contentOf(db));
    expect((await archive.storage.list("bases/")).length).toBe(1);
  });

  test("continues in the middle of the log when another process has kept it", async () => {
    using archive = makeArchive();
    using other = openDatabase(archive.path);
    {
      await using server = await startArchived(archive.path, archive.storage);
      server.insert(20);
      await server.untilComplete();
    }
    other.run("insert into t (content) values ('other')");
    await using server = await startArchived(archive.path, archive.storage);
    expect(server.lines[0]).toEqual(opened(true));
    server.insert(20);
    await server.untilComplete();
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("begins with a new base when another program has written meanwhile", async () => {
    using archive = makeArchive();
    {
      await using server = await startArchived(archive.path, archive.storage);
      server.insert(20);
      await server.untilComplete();
    }
    {
      using other = new Database(archive.path);
      other.run("insert into t (content) values ('other')");
    }
    await using server = await startArchived(archive.path, archive.storage);
    expect(server.lines[0]).toEqual(opened(false));
    server.insert(20);
    await server.untilComplete();
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("has what another program writes, which cannot restart the log", async () => {
    using archive = makeArchive();
    await using server = await startArchived(archive.path, archive.storage);
    server.insert(20);
    await server.untilComplete();
    using other = new Database(archive.path);
    for (let at = 0; at < 50; at += 1) {
      other.run("insert into t (content) values (randomblob(3000))");
      other.run("pragma wal_checkpoint(truncate)");
      if (at % 10 === 0) server.archiver.checkpoint();
      await Bun.sleep(1);
    }
    await server.untilComplete();
    expect(await archive.restore()).toEqual(contentOf(server.db));
    expect(server.lines.length).toBe(2);
  });

  test("is complete again after the storage was away", async () => {
    using archive = makeArchive();
    const { storage, fail } = unreliable(archive.storage);
    await using server = await startArchived(archive.path, storage);
    server.insert(20);
    await server.untilComplete();
    const before = contentOf(server.db);
    fail("the storage is away");
    for (let round = 0; round < 10; round += 1) {
      server.insert(50, 5000);
      server.archiver.checkpoint();
      await Bun.sleep(20);
    }
    expect(server.lines).toContain('archive not written {"reason":"the storage is away"}');
    expect(server.state().bytesBehind).toBeGreaterThan(1_000_000);
    expect(server.state().secondsBehind).toBeGreaterThan(0);
    expect(await archive.restore()).toEqual(before);
    fail(null);
    await server.untilComplete();
    expect(await archive.restore()).toEqual(contentOf(server.db));
    while (server.state().bytesBehind > 0) await Bun.sleep(1);
    expect(server.state()).toMatchObject({ secondsBehind: 0 });
    expect(server.lines).toContain("archive written again {}");
    // The same log: no new base.
    expect((await archive.storage.list("bases/")).length).toBe(1);
  });

  test("begins with a new base when the log has become too long while the storage was away", async () => {
    using archive = makeArchive();
    const { storage, fail } = unreliable(archive.storage);
    await using server = await startArchived(archive.path, storage, { maxLogBytes: 2 ** 20 });
    server.insert(20);
    await server.untilComplete();
    fail("the storage is away");
    const isLetGo = () => server.lines.some((line) => line.includes("away for too long"));
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
    server.insert(20);
    fail(null);
    await server.untilComplete();
    expect(await archive.restore()).toEqual(contentOf(server.db));
    expect((await archive.storage.list("bases/")).length).toBe(2);
  });

  test("begins with a base when the log is let go after the response to its generation was lost", async () => {
    using archive = makeArchive();
    let before: unknown;
    {
      await using server = await startArchived(archive.path, archive.storage);
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
        if (isSecond(key)) fail("the storage is away");
        return isSecond(key) ? null : tag;
      },
    };
    await using server = await startArchived(archive.path, lossy, { maxLogBytes: 2 ** 20 });
    for (let round = 0; round < 10; round += 1) {
      server.insert(100, 10_000);
      server.archiver.checkpoint();
    }
    server.insert(20);
    fail(null);
    await server.untilComplete();
    expect(server.lines).toContainEqual(opened(false));
    expect(await archive.restore()).toEqual(contentOf(server.db));
    // Nothing but the new base has what was in the log.
    const [, base = ""] = (await archive.storage.list("bases/")).map(({ key }) => key);
    await archive.storage.remove([base]);
    expect(await archive.restore()).toEqual(before);
  });

  test("begins when the storage responds, if it is away at the start", async () => {
    using archive = makeArchive();
    const { storage, fail } = unreliable(archive.storage);
    fail("the storage is away");
    await using server = await startArchived(archive.path, storage);
    server.insert(20);
    server.archiver.checkpoint();
    expect(server.lines).toEqual(['archive not written {"reason":"the storage is away"}']);
    fail(null);
    await server.untilComplete();
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("restores the state of each moment", async () => {
    using archive = makeArchive();
    await using server = await startArchived(archive.path, archive.storage);
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
    const lease = {
      acquire: async () => 1,
      isHeld: () => held,
      whenLost: lost.promise,
      async release() {},
    };
    await using server = await startArchived(archive.path, archive.storage, { lease });
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
      await using server = await startArchived(archive.path, archive.storage);
      await server.untilComplete();
    }
    const lease = {
      acquire: async () => 1,
      isHeld: () => true,
      whenLost: new Promise<string>(() => {}),
      async release() {},
    };
    const late = startArchived(archive.path, archive.storage, { lease });
    await expectRejection(late, "operator", /^another server has continued the archive: /);
  });

  test("is rejected when it belongs to another database", async () => {
    using archive = makeArchive();
    {
      await using server = await startArchived(archive.path, archive.storage);
      await server.untilComplete();
    }
    const other = startArchived(archive.at("b.db"), archive.storage);
    await expectRejection(other, "operator", /^the archive belongs to another database: /);
    rmSync(`${archive.path}-archive`);
    const unmarked = startArchived(archive.path, archive.storage);
    await expectRejection(unmarked, "operator", /^the archive belongs to another database: /);
  });
});
