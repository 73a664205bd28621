// What an archive can restore when one of its bases is damaged.

import { describe, expect, test } from "bun:test";
import { type Base, decodeJson } from "../../../src/sqlite/archive/format.ts";
import { baseKey, chunkKey, parseKey, slotKey } from "../../../src/sqlite/archive/keys.ts";
import { listRanges } from "../../../src/sqlite/archive/read/catalog.ts";
import { deleteExpired } from "../../../src/sqlite/archive/write/retention.ts";
import { expectRejection } from "../../support/expect-error.ts";
import {
  type Archive,
  adviceOf,
  contentOf,
  makeArchive,
  openDatabase,
  warningOf,
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
    await archive.untilBases(written);
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

function chunkOf(manifest: string): string {
  const base = parseKey(manifest, baseKey);
  if (base === null) throw new Error(`Not a manifest: ${manifest}`);
  return chunkKey(base, 0);
}

type Damage = (archive: Archive, key: string) => Promise<string>;

const clear: Damage = (archive, key) => archive.clear(key);

const lose: Damage = (archive, key) => archive.lose(key);

const changeBit: Damage = (archive, key) => archive.changeBit(key);

const changeChunk: Damage = (archive, manifest) => archive.changeBit(chunkOf(manifest));

const removeChunk: Damage = async ({ storage }, manifest) => {
  await storage.remove([chunkOf(manifest)]);
  return `${chunkOf(manifest)} is missing`;
};

describe("restore", () => {
  test("begins with an older base when several newer ones are damaged", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive, 4);
    const [, second = "", third = "", fourth = ""] = await archive.keys("bases/");
    const damages: [string, string][] = [
      [fourth, await clear(archive, fourth)],
      [third, await changeChunk(archive, third)],
      [second, await removeChunk(archive, second)],
    ];
    const warnings = damages.map(([manifest, damage]) => warningOf(manifest, damage));
    expect(await archive.restore(null, warnings)).toEqual(contentOf(server.db));
    for (const [at, { time, content }] of server.states.entries())
      expect(await archive.restore(time, warnings.slice(3 - at))).toEqual(content);
  });

  test("names every base when all are damaged", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive, 3);
    const [first = "", second = "", third = ""] = await archive.keys("bases/");
    const damages = [
      await removeChunk(archive, third),
      await clear(archive, second),
      await changeChunk(archive, first),
    ];
    for (const at of [null, ...server.states.map(({ time }) => time).reverse()]) {
      const message = `the archive is damaged: ${damages.join(", and ")}`;
      await expectRejection(archive.restore(at), "operator", message);
      if (at !== null) damages.shift();
    }
    const early = archive.restore(new Date(0));
    await expectRejection(early, "operator", "the archive begins at 2026-11-01T00:00:00.000Z");
  });

  test.each([
    ["missing", changeChunk, lose],
    ["damaged", removeChunk, changeBit],
  ])("is refused when a base is damaged and a segment since an older one is %s", async (...row) => {
    const [, damageBase, damageSegment] = row;
    using archive = makeArchive();
    await using server = await startWithBases(archive);
    const [first] = server.states;
    const [, manifest = ""] = await archive.keys("bases/");
    const base = decodeJson<Base>(manifest, await archive.body(manifest));
    const segment = (await archive.segments())[base.first.number - 2] ?? "";
    const damages = [await damageBase(archive, manifest), await damageSegment(archive, segment)];
    const what = `the archive is damaged: ${damages.join(", and ")}`;
    const time = await adviceOf(archive.restore(), what);
    expect(await archive.restore(time)).toEqual(first?.content);
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
      const [, base = ""] = await archive.keys("bases/");
      const { first } = decodeJson<Base>(base, await archive.body(base));
      const keys = await archive.segments();
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
    const key = (await archive.keys("bases/")).at(-1) ?? "";
    const problem = `the archive is damaged: ${await archive.clear(key)}`;
    const time = await adviceOf(archive.restore(), problem);
    expect(time.getTime()).toBe(nowMs - 1);
    expect(await archive.restore(time)).toEqual(before);
    await using server = await archive.start(options);
    expect(server.lines[0]).toContain('"continued":false');
    await writeSegments(server, 3);
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });
});

test("the ranges of an archive say what is missing behind them, and which base is damaged", async () => {
  using archive = makeArchive();
  await using server = await startWithBases(archive, 3);
  const [, second = "", third = ""] = await archive.keys("bases/");
  const base = decodeJson<Base>(third, await archive.body(third));
  expect(await listRanges(archive.storage)).toHaveLength(1);
  const missing = await archive.lose(slotKey({ ...base.first, number: base.first.number - 1 }));
  const damage = await clear(archive, second);
  const before = archive.restore(new Date(base.timeMs - 1));
  const end = await adviceOf(before, `the archive is damaged: ${damage}, and ${missing}`);
  const newest = server.states[2]?.time.getTime() ?? 0;
  const generations = [1, 1] as const;
  expect(await listRanges(archive.storage)).toEqual([
    { generations, times: [new Date(START_MS), end], loss: missing },
    { generations, times: null, loss: damage },
    { generations, times: [new Date(base.timeMs), new Date(newest + HOUR_MS)], loss: null },
  ]);
});

test("what an older base needs is kept while the manifest of a newer one is damaged", async () => {
  using archive = makeArchive();
  await using server = await startWithBases(archive);
  const [, manifest = ""] = await archive.keys("bases/");
  const warning = warningOf(manifest, await clear(archive, manifest));
  await deleteExpired(archive.storage, Number.POSITIVE_INFINITY);
  expect(await archive.restore(null, [warning])).toEqual(contentOf(server.db));
});
