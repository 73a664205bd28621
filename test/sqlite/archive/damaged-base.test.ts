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
  serve,
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

const changeChunk = ({ changeBit }: Archive, manifest: string) => changeBit(chunkOf(manifest));

async function removeChunk({ storage }: Archive, manifest: string): Promise<string> {
  await storage.remove([chunkOf(manifest)]);
  return `${chunkOf(manifest)} is missing`;
}

describe("restore", () => {
  test("begins with an older base when newer ones are damaged, and names each when all are", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive, 4);
    const [first = "", second = "", third = "", fourth = ""] = await archive.keys("bases/");
    const damages: [string, string][] = [
      [fourth, await archive.clear(fourth)],
      [third, await changeChunk(archive, third)],
      [second, await removeChunk(archive, second)],
    ];
    const warnings = damages.map(([manifest, damage]) => warningOf(manifest, damage));
    expect(await archive.restore(null, warnings)).toEqual(contentOf(server.db));
    for (const [at, { time, content }] of server.states.entries())
      expect(await archive.restore(time, warnings.slice(3 - at))).toEqual(content);
    const all = [...damages.map(([, damage]) => damage), await changeChunk(archive, first)];
    for (const at of [null, ...server.states.map(({ time }) => time).reverse()]) {
      const message = `the archive is damaged: ${all.join(", and ")}`;
      await expectRejection(archive.restore(at), "operator", message);
      if (at !== null) all.shift();
    }
    const early = archive.restore(new Date(0));
    await expectRejection(early, "operator", "the archive begins at 2026-11-01T00:00:00.000Z");
  });

  test.each([true, false])(
    "is refused when a base is damaged and a segment since an older one is, too, or missing: %p",
    async (isMissing) => {
      using archive = makeArchive();
      await using server = await startWithBases(archive);
      const [first] = server.states;
      const [, manifest = ""] = await archive.keys("bases/");
      const base = decodeJson<Base>(manifest, await archive.body(manifest));
      const segment = (await archive.segments())[base.first.number - 2] ?? "";
      const damages = isMissing
        ? [await changeChunk(archive, manifest), await archive.lose(segment)]
        : [await removeChunk(archive, manifest), await archive.changeBit(segment)];
      const time = await adviceOf(archive.restore(), damages.join(", and "));
      expect(await archive.restore(time)).toEqual(first?.content);
    },
  );

  test("of a time before a base whose segments are missing begins with an older one", async () => {
    using archive = makeArchive();
    await using server = await startWithBases(archive);
    const [middle] = server.states;
    const [, base = ""] = await archive.keys("bases/");
    const { first } = decodeJson<Base>(base, await archive.body(base));
    await archive.storage.remove((await archive.segments()).slice(first.number - 1));
    const what = `segment ${first.number} of generation 1 is missing`;
    const time = await adviceOf(archive.restore(), what);
    expect(await archive.restore(time)).toEqual(middle?.end);
    expect(await archive.restore(middle?.time)).toEqual(middle?.content);
  });

  test("of a time before a lineage whose only base is damaged has the state of an earlier one", async () => {
    using archive = makeArchive();
    let nowMs = START_MS;
    const nowOf = () => nowMs;
    await serve(archive, 3, { nowMs: nowOf });
    const before = await archive.restore();
    const other = openDatabase(archive.path);
    other.run("insert into t (content) values ('other')");
    other.close();
    nowMs += HOUR_MS;
    await serve(archive, 3, { nowMs: nowOf });
    const damage = await archive.clear((await archive.keys("bases/")).at(-1) ?? "");
    const time = await adviceOf(archive.restore(), damage);
    expect(time.getTime()).toBe(nowMs - 1);
    expect(await archive.restore(time)).toEqual(before);
    await using server = await archive.start({ nowMs: nowOf });
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
  const damage = await archive.clear(second);
  const before = archive.restore(new Date(base.timeMs - 1));
  const end = await adviceOf(before, `${damage}, and ${missing}`);
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
  const warning = warningOf(manifest, await archive.clear(manifest));
  await deleteExpired(archive.storage, Number.POSITIVE_INFINITY);
  expect(await archive.restore(null, [warning])).toEqual(contentOf(server.db));
});
