// What an archive can restore when objects are missing, damaged, late, or were written by several servers.
import { describe, expect, test } from "bun:test";
import { copyFileSync } from "node:fs";
import type { ObjectStorage } from "../../../src/object-storage.ts";
import { markRestored, restoreTo } from "../../../src/sqlite/archive/missing.ts";
import { deleteExpired } from "../../../src/sqlite/archive/retention.ts";
import { expectRejection } from "../../expect-error.ts";
import { contentOf, makeArchive, openDatabase, type Server } from "./archived.ts";

const HOUR_MS = 3_600_000;

async function keysOf(storage: ObjectStorage, prefix: string): Promise<string[]> {
  return (await storage.list(prefix)).map(({ key }) => key);
}

async function bodyOf(storage: ObjectStorage, key: string): Promise<Uint8Array<ArrayBuffer>> {
  return (await storage.get(key))?.body ?? new Uint8Array();
}

/** Writes segments one by one. */
async function writeSegments(server: Server, count: number) {
  for (let at = 0; at < count; at += 1) {
    server.insert(3);
    await server.untilComplete();
  }
}

/** @returns the time that the message of a failed restore names */
async function adviceOf(restore: Promise<unknown>, problem: string): Promise<Date> {
  const { message } = await expectRejection(restore, "operator", /--at/);
  const [, what, time = ""] =
    /^(.+): restore a state before it with --at (\S+)$/.exec(message) ?? [];
  expect(what).toBe(problem);
  return new Date(time);
}

/** @returns a server that has written two bases, and what was stored in between */
async function startWithBases(archive: ReturnType<typeof makeArchive>) {
  let nowMs = Date.parse("2026-11-01T00:00:00Z");
  const server = await archive.start({ nowMs: () => nowMs, keepMs: 1e12 });
  await writeSegments(server, 3);
  nowMs += HOUR_MS;
  await writeSegments(server, 3);
  const middle = { time: new Date(nowMs), content: contentOf(server.db) };
  nowMs += 25 * HOUR_MS;
  server.archiver.checkpoint();
  await writeSegments(server, 1);
  while ((await keysOf(archive.storage, "bases/")).length < 2) await Bun.sleep(1);
  await writeSegments(server, 3);
  return { ...server, middle };
}

describe("restore", () => {
  test("names a time before a missing segment, and its server begins with a new base", async () => {
    using archive = makeArchive();
    let before: unknown;
    let missing = 0;
    {
      await using server = await archive.start();
      await writeSegments(server, 3);
      before = contentOf(server.db);
      missing = (await keysOf(archive.storage, "log/")).length;
      await Bun.sleep(5);
      await writeSegments(server, 5);
    }
    const removed = (await keysOf(archive.storage, "log/")).slice(missing, missing + 1);
    await archive.storage.remove(removed);
    const what = `segment ${missing + 1} of generation 1 is missing`;
    const time = await adviceOf(archive.restore(), `the archive is damaged: ${what}`);
    expect(await archive.restore(time)).toEqual(before);
    const later = new Date(time.getTime() + 1);
    await expectRejection(archive.restore(later), "operator", / is missing: restore /);
    await using server = await archive.start();
    expect(server.lines).toEqual([
      `archive needs a new base {"reason":"${what}"}`,
      expect.stringContaining('"continued":false'),
    ]);
    await writeSegments(server, 3);
    expect(await archive.restore()).toEqual(contentOf(server.db));
    expect(await archive.restore(time)).toEqual(before);
  });

  test("begins with an older base when the manifest of a newer one is damaged", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive);
    const { middle } = server;
    const [first = "", second = ""] = await keysOf(archive.storage, "bases/");
    for (const content of ["", '{"first":{}}']) {
      await archive.storage.put(second, new TextEncoder().encode(content));
      expect(await archive.restore()).toEqual(contentOf(server.db));
      expect(await archive.restore(middle.time)).toEqual(middle.content);
    }
    await expectRejection(
      deleteExpired(archive.storage, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY),
      "operator",
      `the archive is damaged: ${second} cannot be read`,
    );
    expect(await archive.restore()).toEqual(contentOf(server.db));
    await archive.storage.put(first, new Uint8Array());
    for (const at of [null, new Date(0)])
      await expectRejection(
        archive.restore(at),
        "operator",
        /^the archive is damaged: bases\/\S+ cannot be read$/,
      );
  });

  test("of a time before a base with a missing segment begins with an older one", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive);
    const { middle } = server;
    const [, base = ""] = await keysOf(archive.storage, "bases/");
    const { first } = JSON.parse(new TextDecoder().decode(await bodyOf(archive.storage, base)));
    const keys = await keysOf(archive.storage, "log/");
    await archive.storage.remove(keys.slice(first.number - 1, first.number));
    const what = `the archive is damaged: segment ${first.number} of generation 1 is missing`;
    const time = await adviceOf(archive.restore(), what);
    expect(await archive.restore(time)).toEqual(middle.content);
    expect(await archive.restore(middle.time)).toEqual(middle.content);
  });

  test("of a time before a lineage whose only base is damaged has the state of an earlier one", async () => {
    using archive = makeArchive();
    let nowMs = Date.parse("2026-11-01T00:00:00Z");
    const options = { nowMs: () => nowMs };
    let before: unknown;
    {
      await using server = await archive.start(options);
      await writeSegments(server, 3);
      before = contentOf(server.db);
    }
    using other = openDatabase(archive.path);
    other.run("insert into t (content) values ('other')");
    other.close();
    nowMs += HOUR_MS;
    {
      await using server = await archive.start(options);
      await writeSegments(server, 3);
    }
    const key = (await keysOf(archive.storage, "bases/")).at(-1) ?? "";
    await archive.storage.put(key, new Uint8Array());
    const problem = `the archive is damaged: ${key} cannot be read`;
    await expectRejection(archive.restore(), "operator", problem);
    expect(await archive.restore(new Date(nowMs - 1))).toEqual(before);
    await using server = await archive.start(options);
    expect(server.lines[0]).toContain('"continued":false');
    await writeSegments(server, 3);
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("ends before a segment that was never sent", async () => {
    using archive = makeArchive();
    let late = "";
    const storage: ObjectStorage = {
      ...archive.storage,
      async put(key, body) {
        if (late !== "" && key.includes(late)) return new Promise(() => {});
        return archive.storage.put(key, body);
      },
    };
    await using server = await archive.start({ storage });
    await writeSegments(server, 3);
    const before = contentOf(server.db);
    const { length } = await keysOf(archive.storage, "log/");
    late = `/${`${length + 1}`.padStart(10, "0")}-`;
    for (let commit = 100; commit < 103; commit += 1) {
      server.insert(3);
      server.archiver.committed(commit);
      await Bun.sleep(20);
    }
    while ((await keysOf(archive.storage, "log/")).length < length + 2) await Bun.sleep(1);
    expect(await archive.restore()).toEqual(before);
    expect(server.confirmed()).toBeLessThan(100);
  }, 30_000);

  test.each(["log/", "chunks/"])("is refused when an object in %s is damaged", async (prefix) => {
    using archive = makeArchive();
    await using server = await archive.start();
    await writeSegments(server, 3);
    const [key = ""] = await keysOf(archive.storage, prefix);
    const body = await bodyOf(archive.storage, key);
    body[body.length - 1] = (body.at(-1) ?? 0) ^ 1;
    await archive.storage.put(key, body);
    // Without advice: the archive has no earlier base.
    const problem = `the archive is damaged: ${key} does not match its checksum`;
    await expectRejection(archive.restore(), "operator", problem);
  });

  test("is refused when the header of a segment is damaged", async () => {
    using archive = makeArchive();
    await using server = await archive.start();
    await writeSegments(server, 3);
    for (const key of (await keysOf(archive.storage, "log/")).slice(0, 2)) {
      const sound = await bodyOf(archive.storage, key);
      const length = sound.indexOf(10) + 1;
      const header = new TextDecoder().decode(sound.subarray(0, length));
      let accepted = "";
      for (let at = 0; at < length; at += 1) {
        const damaged = sound.slice();
        damaged[at] = (sound[at] ?? 0) ^ 1;
        await archive.storage.put(key, damaged);
        const isRestored = await archive.restore().then(
          () => true,
          () => false,
        );
        if (isRestored) accepted += header.slice(at - 9, at + 1);
      }
      // Any number up to that of the segment is possible.
      expect(accepted).toMatch(/^("stored":\d)?$/);
      await archive.storage.put(key, sound);
    }
    expect(await archive.restore()).toEqual(contentOf(server.db));
  }, 60_000);

  test("names a time before a damaged segment, and its server begins with a new base", async () => {
    using archive = makeArchive();
    let before: unknown;
    {
      await using server = await archive.start();
      await writeSegments(server, 3);
      before = contentOf(server.db);
      await Bun.sleep(5);
      await writeSegments(server, 1);
    }
    const key = (await keysOf(archive.storage, "log/")).at(-1) ?? "";
    await archive.storage.put(key, new Uint8Array());
    const time = await adviceOf(archive.restore(), `the archive is damaged: ${key} cannot be read`);
    const path = archive.at("b.db");
    const restored = await restoreTo(path, archive.storage, time);
    markRestored(path, restored, true);
    copyFileSync(path, archive.at("c.db"));
    {
      using db = openDatabase(archive.at("c.db"));
      expect(contentOf(db)).toEqual(before);
    }
    {
      await using server = await archive.start();
      expect(server.lines).toEqual([
        `archive needs a new base {"reason":"${key} is damaged"}`,
        expect.stringContaining('"continued":false'),
      ]);
      await writeSegments(server, 3);
      expect(await archive.restore()).toEqual(contentOf(server.db));
      expect(await archive.restore(time)).toEqual(before);
    }
    const late = archive.start({ path });
    await expectRejection(late, "operator", /^another server has continued the archive: /);
  });

  test("of an earlier time continues an archive whose last segment is damaged", async () => {
    using archive = makeArchive();
    let middle = new Date();
    {
      await using server = await archive.start();
      await writeSegments(server, 3);
      await Bun.sleep(5);
      middle = new Date();
      await Bun.sleep(5);
      await writeSegments(server, 1);
    }
    const key = (await keysOf(archive.storage, "log/")).at(-1) ?? "";
    await archive.storage.put(key, new Uint8Array());
    const path = archive.at("b.db");
    markRestored(path, await restoreTo(path, archive.storage, middle), true);
    await using server = await archive.start({ path });
    await writeSegments(server, 3);
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("ignores what a server has written after another one has continued the archive", async () => {
    using archive = makeArchive();
    {
      await using server = await archive.start();
      await writeSegments(server, 3);
    }
    const [key = ""] = (await keysOf(archive.storage, "log/00000001/")).slice(-1);
    const late = await bodyOf(archive.storage, key);
    await using server = await archive.start();
    await writeSegments(server, 3);
    await archive.storage.put("log/00000001/0000000/0000000099-1795439359468", late);
    const next = Number(/(\d+)-\d+$/.exec(key)?.[1]) + 1;
    await archive.storage.put(
      `log/00000001/0000000/${`${next}`.padStart(10, "0")}-1795439359468`,
      late,
    );
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("of a time ends before the first segment that is newer, also if a clock was slow", async () => {
    using archive = makeArchive();
    let nowMs = Date.parse("2026-11-01T00:00:00Z");
    const options = { nowMs: () => nowMs };
    let middle: unknown;
    {
      await using server = await archive.start(options);
      await writeSegments(server, 4);
      middle = contentOf(server.db);
      nowMs += 10_000;
      await writeSegments(server, 4);
    }
    nowMs -= 8_000;
    await using server = await archive.start(options);
    await writeSegments(server, 4);
    expect(server.lines[0]).toContain('"continued":true');
    expect(await archive.restore(new Date(nowMs + 3_000))).toEqual(middle);
    expect(await archive.restore(new Date(nowMs + 8_000))).toEqual(contentOf(server.db));
  });

  test("of a time ends before the first segment that is newer, also if later ones are not", async () => {
    using archive = makeArchive();
    const nowMs = Date.parse("2026-11-01T00:00:00Z");
    const options = { nowMs: () => nowMs };
    await using server = await archive.start(options);
    await writeSegments(server, 4);
    const middle = contentOf(server.db);
    const { length } = await keysOf(archive.storage, "log/");
    await writeSegments(server, 4);
    const key = (await keysOf(archive.storage, "log/"))[length] ?? "";
    const body = await bodyOf(archive.storage, key);
    await archive.storage.put(key.replace(`-${nowMs}`, `-${nowMs + 10_000}`), body);
    await archive.storage.remove([key]);
    expect(await archive.restore(new Date(nowMs + 5_000))).toEqual(middle);
  });

  test("is refused when the WAL was restarted and parts before that are not in the history", async () => {
    using archive = makeArchive();
    for (let start = 0; start < 2; start += 1) {
      await using server = await archive.start();
      await writeSegments(server, 4);
    }
    const key = "generations/00000002";
    const { parent, ...rest } = JSON.parse(
      new TextDecoder().decode(await bodyOf(archive.storage, key)),
    );
    const changed = { ...rest, parent: { ...parent, number: parent.number - 1 } };
    await archive.storage.put(key, new TextEncoder().encode(JSON.stringify(changed)));
    await expectRejection(
      archive.restore(),
      "operator",
      /^the archive is damaged: log\/00000002\/.* does not continue the one before it: /,
    );
  });

  test("begins with a base that was written over an empty log", async () => {
    using archive = makeArchive();
    openDatabase(archive.path).close(true);
    for (let start = 0; start < 2; start += 1) {
      await using server = await archive.start();
      await server.untilComplete();
      expect(server.lines[0]).toContain(`"continued":${start > 0}`);
      if (start === 0) continue;
      await writeSegments(server, 3);
      expect(await archive.restore()).toEqual(contentOf(server.db));
    }
  });

  test("is refused when the archive is empty", async () => {
    using archive = makeArchive();
    await expectRejection(archive.restore(), "operator", "the archive is empty");
  });
});

describe("a restored database", () => {
  test("continues the archive without a base", async () => {
    using archive = makeArchive();
    {
      await using server = await archive.start();
      await writeSegments(server, 3);
    }
    const path = archive.at("b.db");
    markRestored(path, await restoreTo(path, archive.storage, null), true);
    await using server = await archive.start({ path });
    await writeSegments(server, 3);
    expect(server.lines[0]).toContain('"continued":true');
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("cannot continue the archive when another server has done so since", async () => {
    using archive = makeArchive();
    {
      await using server = await archive.start();
      await writeSegments(server, 3);
    }
    const path = archive.at("b.db");
    markRestored(path, await restoreTo(path, archive.storage, null), true);
    copyFileSync(`${path}-archive`, archive.at("c.db-archive"));
    copyFileSync(path, archive.at("c.db"));
    {
      await using server = await archive.start({ path });
      await writeSegments(server, 3);
    }
    const late = archive.start({ path: archive.at("c.db") });
    await expectRejection(late, "operator", /^another server has continued the archive: /);
    const first = archive.start();
    await expectRejection(first, "operator", /^another server has continued the archive: /);
  });

  test("cannot continue the archive when another server has written to it during the restore", async () => {
    using archive = makeArchive();
    const path = archive.at("b.db");
    {
      await using server = await archive.start();
      await writeSegments(server, 3);
      const storage: ObjectStorage = {
        ...archive.storage,
        async get(key) {
          if (key.startsWith("chunks/")) await writeSegments(server, 3);
          return archive.storage.get(key);
        },
      };
      markRestored(path, await restoreTo(path, storage, null), true);
    }
    const late = archive.start({ path });
    await expectRejection(late, "operator", /^another server has continued the archive: /);
  });

  test("of an earlier time begins a new history, and the old one can still be restored", async () => {
    using archive = makeArchive();
    let middle = new Date();
    let newest: [Date, unknown];
    {
      await using server = await archive.start();
      await writeSegments(server, 3);
      await Bun.sleep(5);
      middle = new Date();
      await Bun.sleep(5);
      await writeSegments(server, 3);
      newest = [new Date(), contentOf(server.db)];
    }
    const path = archive.at("b.db");
    markRestored(path, await restoreTo(path, archive.storage, middle), true);
    await Bun.sleep(5);
    await using server = await archive.start({ path });
    expect(server.lines[0]).toContain('"continued":false');
    await writeSegments(server, 1);
    expect(await archive.restore()).toEqual(contentOf(server.db));
    expect(await archive.restore(newest[0])).toEqual(newest[1]);
  });
});

test("objects are deleted when no state that is kept needs them", async () => {
  using archive = makeArchive();
  let nowMs = Date.parse("2026-11-01T00:00:00Z");
  const options = { keepMs: 48 * HOUR_MS, nowMs: () => nowMs };
  await using server = await archive.start(options);
  const states: [Date, unknown][] = [];
  for (let day = 1; day <= 8; day += 1) {
    await writeSegments(server, 5);
    states.push([new Date(nowMs), contentOf(server.db)]);
    nowMs += 25 * HOUR_MS;
    server.archiver.checkpoint();
    server.insert(1);
    const bases = () => server.lines.filter((line) => line.startsWith("archive base")).length;
    while (bases() <= day) await Bun.sleep(1);
    await server.untilComplete();
  }
  while ((await keysOf(archive.storage, "bases/")).length > 3) await Bun.sleep(1);
  expect(await archive.restore()).toEqual(contentOf(server.db));
  for (const [time, content] of states.slice(-2))
    expect(await archive.restore(time)).toEqual(content);
  const [first] = states;
  await expectRejection(
    archive.restore(first?.[0]),
    "operator",
    /^the archive begins at 2026-11-0/,
  );
  const segments = await keysOf(archive.storage, "log/");
  expect(segments.length).toBeLessThan(25);
  expect(segments.some((key) => key.includes("/0000000001-"))).toBe(false);
});
