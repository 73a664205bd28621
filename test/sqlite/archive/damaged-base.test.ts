// What an archive can restore when one of its bases is damaged.
import { describe, expect, test } from "bun:test";
import type { ObjectStorage } from "../../../src/object-storage.ts";
import {
  type Base,
  chunkKey,
  decodeJson,
  parseBaseKey,
} from "../../../src/sqlite/archive/format.ts";
import { deleteExpired } from "../../../src/sqlite/archive/retention.ts";
import { expectRejection } from "../../expect-error.ts";
import {
  type Archive,
  adviceOf,
  bodyOf,
  contentOf,
  keysOf,
  makeArchive,
  openDatabase,
  restoreOther,
  writeSegments,
} from "./archived.ts";

const HOUR_MS = 3_600_000;
const START_MS = Date.parse("2026-11-01T00:00:00Z");

/** @returns a server that has written bases, a day apart, and the states behind each */
async function startWithBases(archive: Archive, count = 2) {
  let nowMs = START_MS;
  const server = await archive.start({ nowMs: () => nowMs, keepMs: 1e12 });
  const states: { time: Date; content: unknown; end: unknown }[] = [];
  for (let written = 1; written <= count; written += 1) {
    await writeSegments(server, 3);
    while ((await keysOf(archive.storage, "bases/")).length < written) await Bun.sleep(1);
    nowMs += HOUR_MS;
    await writeSegments(server, 3);
    const state = { time: new Date(nowMs), content: contentOf(server.db) };
    nowMs += HOUR_MS;
    await writeSegments(server, 1);
    states.push({ ...state, end: contentOf(server.db) });
    if (written === count) break;
    nowMs += 24 * HOUR_MS;
    server.archiver.checkpoint();
  }
  return { ...server, states };
}

/** @returns what is damaged */
type Damage = (storage: ObjectStorage, manifest: string) => Promise<string>;

function chunkOf(manifest: string): string {
  const base = parseBaseKey(manifest);
  if (base === null) throw new Error(`Not a manifest: ${manifest}`);
  return chunkKey(base, 0);
}

const clearManifest: Damage = async (storage, manifest) => {
  await storage.put(manifest, new Uint8Array());
  return `${manifest} cannot be read`;
};

const changeChunk: Damage = async (storage, manifest) => {
  const chunk = chunkOf(manifest);
  const body = await bodyOf(storage, chunk);
  body[body.length - 1] = (body.at(-1) ?? 0) ^ 1;
  await storage.put(chunk, body);
  return `${chunk} does not match its checksum`;
};

const removeChunk: Damage = async (storage, manifest) => {
  await storage.remove([chunkOf(manifest)]);
  return `${chunkOf(manifest)} is missing`;
};

function warningOf(manifest: string, damage: string): string {
  return `${manifest} is damaged, an older base was used, and nothing is lost: ${damage}`;
}

describe("restore", () => {
  test.each([
    ["the manifest of the newest one is damaged", clearManifest],
    ["a chunk of the newest one is damaged", changeChunk],
    ["a chunk of the newest one is missing", removeChunk],
  ])("begins with an older base when %s", async (_title, damage) => {
    using archive = makeArchive();
    await using server = await startWithBases(archive);
    const [first, second] = server.states;
    const [, manifest = ""] = await keysOf(archive.storage, "bases/");
    const warning = warningOf(manifest, await damage(archive.storage, manifest));
    expect(await archive.restore(null, [warning])).toEqual(contentOf(server.db));
    expect(await archive.restore(second?.time, [warning])).toEqual(second?.content);
    expect(await archive.restore(first?.time)).toEqual(first?.content);
  });

  test("begins with an older base when several newer ones are damaged", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive, 4);
    const [, second = "", third = "", fourth = ""] = await keysOf(archive.storage, "bases/");
    const damages: [string, string][] = [
      [fourth, await clearManifest(archive.storage, fourth)],
      [third, await changeChunk(archive.storage, third)],
      [second, await removeChunk(archive.storage, second)],
    ];
    const warnings = damages.map(([manifest, damage]) => warningOf(manifest, damage));
    expect(await archive.restore(null, warnings)).toEqual(contentOf(server.db));
    for (const [at, { time, content }] of server.states.entries())
      expect(await archive.restore(time, warnings.slice(3 - at))).toEqual(content);
  });

  test("names every base when all are damaged", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive, 3);
    const [first = "", second = "", third = ""] = await keysOf(archive.storage, "bases/");
    const damages = [
      await removeChunk(archive.storage, third),
      await clearManifest(archive.storage, second),
      await changeChunk(archive.storage, first),
    ];
    for (const at of [null, ...server.states.map(({ time }) => time).reverse()]) {
      const message = `the archive is damaged: ${damages.join(", and ")}`;
      await expectRejection(archive.restore(at), "operator", message);
      if (at !== null) damages.shift();
    }
    const early = archive.restore(new Date(0));
    await expectRejection(early, "operator", "the archive begins at 2026-11-01T00:00:00.000Z");
    await clearManifest(archive.storage, first);
    await clearManifest(archive.storage, third);
    await expectRejection(
      archive.restore(new Date(0)),
      "operator",
      `the archive is damaged: ${[first, second, third].map((key) => `${key} cannot be read`).join(", and ")}`,
    );
  });

  test("is refused when a base is damaged and a segment since an older one is missing", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive);
    const [first] = server.states;
    const [, manifest = ""] = await keysOf(archive.storage, "bases/");
    const base = decodeJson<Base>(manifest, await bodyOf(archive.storage, manifest));
    const damage = await changeChunk(archive.storage, manifest);
    const missing = base.first.number - 1;
    const segments = await keysOf(archive.storage, "log/");
    await archive.storage.remove(segments.slice(missing - 1, missing));
    const what = `${damage}, and segment ${missing} of generation 1 is missing`;
    const time = await adviceOf(archive.restore(), `the archive is damaged: ${what}`);
    expect(await archive.restore(time)).toEqual(first?.content);
  });

  test("is refused when a base is damaged and all segments since an older one are missing", async () => {
    using archive = makeArchive();
    await using _server = await startWithBases(archive, 3);
    const [, second = "", third = ""] = await keysOf(archive.storage, "bases/");
    const { last } = decodeJson<Base>(second, await bodyOf(archive.storage, second));
    const damage = await clearManifest(archive.storage, third);
    await archive.storage.remove((await keysOf(archive.storage, "log/")).slice(last.number - 1));
    const what = `${damage}, and segment ${last.number} of generation 1 is missing`;
    await adviceOf(archive.restore(), `the archive is damaged: ${what}`);
  });

  test("is refused when a base and a segment since an older one are damaged", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive);
    const [first] = server.states;
    const [, manifest = ""] = await keysOf(archive.storage, "bases/");
    const base = decodeJson<Base>(manifest, await bodyOf(archive.storage, manifest));
    const damage = await removeChunk(archive.storage, manifest);
    const segment = (await keysOf(archive.storage, "log/"))[base.first.number - 2] ?? "";
    await archive.storage.put(segment, new Uint8Array());
    const what = `the archive is damaged: ${damage}, and ${segment} cannot be read`;
    const time = await adviceOf(archive.restore(), what);
    expect(await archive.restore(time)).toEqual(first?.content);
  });

  test("names a time before a missing segment behind a damaged base", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive);
    const [, second] = server.states;
    const [, manifest = ""] = await keysOf(archive.storage, "bases/");
    const damage = await removeChunk(archive.storage, manifest);
    const { length } = await keysOf(archive.storage, "log/");
    await writeSegments(server, 2);
    const removed = (await keysOf(archive.storage, "log/")).slice(length - 1, length);
    await archive.storage.remove(removed);
    const what = `the archive is damaged: segment ${length} of generation 1 is missing`;
    const time = await adviceOf(archive.restore(), what);
    expect(await archive.restore(time, [warningOf(manifest, damage)])).toEqual(second?.content);
  });

  test("begins with an older base when the damaged one was written over an empty WAL", async () => {
    using archive = makeArchive();
    let nowMs = START_MS;
    const options = { nowMs: () => nowMs };
    {
      await using server = await archive.start(options);
      await writeSegments(server, 3);
    }
    nowMs += 25 * HOUR_MS;
    await using server = await archive.start(options);
    while ((await keysOf(archive.storage, "bases/")).length < 2) await Bun.sleep(1);
    const [, manifest = ""] = await keysOf(archive.storage, "bases/");
    const { last } = decodeJson<Base>(manifest, await bodyOf(archive.storage, manifest));
    expect(last).toEqual({ generation: 2, number: 0 });
    const warning = warningOf(manifest, await removeChunk(archive.storage, manifest));
    expect(await archive.restore(null, [warning])).toEqual(contentOf(server.db));
    await writeSegments(server, 3);
    expect(await archive.restore(null, [warning])).toEqual(contentOf(server.db));
  });

  test.each([
    ["a", 1],
    ["each", Number.POSITIVE_INFINITY],
  ])(
    "of a time before a base that lacks %s segment begins with an older one",
    async (_all, count) => {
      using archive = makeArchive();
      await using server = await startWithBases(archive);
      const [middle] = server.states;
      const [, base = ""] = await keysOf(archive.storage, "bases/");
      const { first } = decodeJson<Base>(base, await bodyOf(archive.storage, base));
      const keys = await keysOf(archive.storage, "log/");
      await archive.storage.remove(keys.slice(first.number - 1, first.number - 1 + count));
      const what = `the archive is damaged: segment ${first.number} of generation 1 is missing`;
      const time = await adviceOf(archive.restore(), what);
      expect(await archive.restore(time)).toEqual(middle?.end);
      expect(await archive.restore(middle?.time)).toEqual(middle?.content);
    },
  );

  test("of a time before a lineage whose only base is damaged has the state of an earlier one", async () => {
    using archive = makeArchive();
    let nowMs = START_MS;
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
    await clearManifest(archive.storage, key);
    const problem = `the archive is damaged: ${key} cannot be read`;
    const time = await adviceOf(archive.restore(), problem);
    expect(time.getTime()).toBe(nowMs - 1);
    expect(await archive.restore(time)).toEqual(before);
    await using server = await archive.start(options);
    expect(server.lines[0]).toContain('"continued":false');
    await writeSegments(server, 3);
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("is repaired by a server that starts when the manifest of a damaged base was deleted", async () => {
    using archive = makeArchive();
    let nowMs = START_MS;
    {
      await using server = await startWithBases(archive);
      nowMs = server.states.at(-1)?.time.getTime() ?? nowMs;
    }
    const [, manifest = ""] = await keysOf(archive.storage, "bases/");
    await changeChunk(archive.storage, manifest);
    const path = await restoreOther(archive, null);
    await archive.storage.remove([manifest]);
    await using server = await archive.start({ path, nowMs: () => nowMs });
    await writeSegments(server, 1);
    while ((await keysOf(archive.storage, "bases/")).length < 2) await Bun.sleep(1);
    expect(server.lines[0]).toContain('"continued":true');
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });
});

test("nothing expires while the manifest of a base is damaged", async () => {
  using archive = makeArchive();
  await using server = await startWithBases(archive);
  const [, manifest = ""] = await keysOf(archive.storage, "bases/");
  const damage = await clearManifest(archive.storage, manifest);
  await expectRejection(
    deleteExpired(archive.storage, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY),
    "operator",
    `the archive is damaged: ${damage}`,
  );
  const warnings = [warningOf(manifest, damage)];
  expect(await archive.restore(null, warnings)).toEqual(contentOf(server.db));
});
