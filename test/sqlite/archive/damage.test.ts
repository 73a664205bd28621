// What an archive can restore when something in it is missing or damaged: the right state, or an error that names it.
import { expect, test } from "bun:test";
import { AppError, messageOf } from "../../../src/base/error.ts";
import type { ArchivedRange } from "../../../src/domain/archive.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { decodeSegment } from "../../../src/sqlite/archive/format.ts";
import {
  generationKey,
  heartbeatKey,
  parseKey,
  slotKey,
} from "../../../src/sqlite/archive/keys.ts";
import { listRanges, NO_BASE } from "../../../src/sqlite/archive/read/catalog.ts";
import { restoreTo } from "../../../src/sqlite/archive/read/rebuild.ts";
import { expectRejection } from "../../support/expect-error.ts";
import { isLong } from "../../support/long.ts";
import { runSql } from "../open-database.ts";
import { type Archive, adviceOf, makeArchive, makeClock, type Server } from "./archived.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

/** A state of an archive. */
interface State {
  /** `null` for the newest one. */
  readonly timeMs: number | null;
  readonly lastSegment: string;
  /** Without any one of the other objects, it can be restored. */
  readonly needed: ReadonlySet<string>;
  /** What is named even if another base leads to it, too: its newest base, and the record of that. */
  readonly named: ReadonlySet<string>;
}

/** Servers, the first of which writes a second base, and the last of which is killed. */
async function serveAll(archive: Archive): Promise<State[]> {
  const states: State[] = [];
  const clock = makeClock();
  let nowMs = Date.parse("2026-11-01T00:00:00Z");
  let spare = new Set<string>();
  let named = new Set([generationKey(1)]);
  const pass = (ms: number) => {
    nowMs += ms;
    clock.pass(ms);
  };
  const write = async (server: Server) => {
    await server.write(1);
    const [lastSegment = ""] = (await archive.segments()).slice(-1);
    const needed = new Set(await archive.keys("")).difference(spare);
    states.push({ timeMs: nowMs, lastSegment, needed, named });
    pass(MINUTE_MS);
  };
  for (const task of ["begin", "continue", "begin anew", "continue"]) {
    if (task === "begin anew") {
      spare = new Set(await archive.keys(""));
      named = new Set([generationKey(3)]);
      runSql(archive.path, "insert into t (content) values ('other')");
    }
    await using server = await archive.start({ nowMs: () => nowMs, clock, keepMs: 1e12 });
    for (let count = 0; count < 2; count += 1) await write(server);
    if (task !== "begin") continue;
    const before = await archive.keys("log/");
    pass(DAY_MS);
    server.archiver.checkpoint();
    await write(server);
    await archive.untilBases(2);
    // One of the bases is enough, and the record of the first generation says nothing.
    const bases = [await archive.keys("bases/"), await archive.keys("chunks/")];
    named = new Set([...named, ...bases.flatMap(([, second = ""]) => second)]);
    spare = new Set([...before, ...bases.flat(), generationKey(1)]);
    pass(MINUTE_MS);
    await write(server);
  }
  await archive.storage.remove((await archive.keys("log/")).slice(-1));
  // As if the others had sent none for long before their ends: their logs and records say more.
  for (const generation of [1, 2, 3])
    await archive.changeHead(heartbeatKey(generation), { confirmed: 0 });
  const newest = states.at(-1) as State;
  return [...states, { ...newest, timeMs: null }];
}

/** @returns the last segment of what is restored, `null` if that fails; and the warnings or the error */
async function restoreLast(storage: ObjectStorage, timeMs: number | null) {
  const nowhere = { beginFile() {}, appendFile() {}, appendWal: () => true, endWal() {} };
  try {
    const at = timeMs === null ? null : new Date(timeMs);
    const { last, warnings } = await restoreTo(nowhere, makeClock(), storage, at);
    return { lastSegment: slotKey(last), said: warnings };
  } catch (error) {
    return { lastSegment: null, said: [messageOf(error)] };
  }
}

/** @returns whether a message names an object that is missing or damaged */
function isNamedIn(text: string): (key: string) => boolean {
  return (key) => {
    const { generation, number } = parseKey(key) ?? { generation: 0, number: 0 };
    const names = [key, `segment ${number} of generation ${generation} is missing`];
    // Without the first segment or a base, others do not lead to the same state.
    if (/^(log|bases|chunks)/.test(key)) names.push("because no base has it");
    if (/^(bases|chunks)/.test(key)) names.push(NO_BASE, "the archive begins at");
    return names.some((name) => text.includes(name));
  };
}

const remove = ({ storage }: Archive, key: string) => storage.remove([key]);
const empty = ({ clear }: Archive, key: string) => clear(key);
const change = ({ changeBit }: Archive, key: string) => changeBit(key);
const damages = [remove, empty, change];

function isListed(ranges: readonly Pick<ArchivedRange, "times">[], timeMs: number): boolean {
  const hasTime = ([from, to]: readonly [Date, Date]) => +from <= timeMs && timeMs <= +to;
  return ranges.some(({ times }) => times !== null && hasTime(times));
}

/** Follows the advice of each error. @returns the last advice, and what it leads to; `null` if there is none */
async function followAdvice(storage: ObjectStorage, [said = ""]: readonly string[]) {
  let followed: { timeMs: number; lastSegment: string | null } | null = null;
  for (let text = said; ; ) {
    const [, advice] = / with --at (\S+)$/.exec(text) ?? [];
    if (advice === undefined) return followed;
    const timeMs = Date.parse(advice);
    expect(timeMs).toBeLessThan(followed?.timeMs ?? Infinity);
    const restored = await restoreLast(storage, timeMs);
    followed = { timeMs, lastSegment: restored.lastSegment };
    text = restored.said[0] ?? "";
  }
}

test("a restore has the right state, or names what is missing or damaged and a time before it", async () => {
  using archive = makeArchive();
  const { storage } = archive;
  const states = await serveAll(archive);
  const keys = await archive.keys("");
  // Of two histories.
  expect(await listRanges(storage)).toHaveLength(2);
  // Each object, and it with the next one, damaged in each way; on CI, other pairs as well.
  const cases = keys.flatMap((one, at) =>
    keys.slice(at, isLong ? undefined : at + 2).flatMap((other, to) => {
      const ways = to <= 1 ? damages : damages.slice(at % 3, (at % 3) + Number(to % 3 === 1));
      return ways.map((damage) => ({ damage, spoiled: new Set([one, other]) }));
    }),
  );
  for (const { damage, spoiled } of cases) {
    const bodies = await Promise.all([...spoiled].map(archive.body));
    for (const key of spoiled) await damage(archive, key);
    const ranges = await listRanges(storage).catch(({ message }) => [
      { times: null, loss: message },
    ]);
    const losses = ranges.flatMap(({ loss }) => loss ?? []);
    const isListable = damage === remove && ![...spoiled].some((key) => key.startsWith("chunks/"));
    // Nothing says that there was a base.
    const isUnknown = damage === remove && [...spoiled].some((key) => key.startsWith("bases/"));
    for (const { timeMs, lastSegment, needed, named } of states) {
      const what = JSON.stringify([damage.name, ...spoiled, timeMs]);
      const { said, ...restored } = await restoreLast(storage, timeMs);
      const isRight = restored.lastSegment === lastSegment;
      const isNeeded = !needed.isDisjointFrom(spoiled);
      if (spoiled.size === 1) expect(isRight || isNeeded, what).toBe(true);
      expect(isRight || said.length > 0, what).toBe(true);
      for (const text of [...said, ...losses])
        expect([...spoiled].filter(isNamedIn(text)), `${what}: ${text}`).not.toEqual([]);
      const unneeded = isNeeded ? [] : spoiled;
      const mustBeNamed = new Set(isRight ? named.intersection(spoiled) : unneeded);
      const areNamed = [...mustBeNamed].every(isNamedIn(said.join()));
      expect(areNamed || isUnknown, what).toBe(true);
      // The contents of objects are not looked at.
      if (isListable && timeMs !== null) {
        expect(isListed(ranges, timeMs), what).toBe(isRight);
        expect(isRight || isUnknown || losses.length > 0, what).toBe(true);
      }
      // Nothing else proves that there is no later segment.
      if (spoiled.has(heartbeatKey(4)) && timeMs === null) expect(isRight, what).toBe(false);
      const before = isRight ? null : await followAdvice(storage, said);
      // The second one may be missing there, too.
      if (before === null || (spoiled.size === 2 && before.lastSegment === null)) continue;
      const newest = states.findLast((state) => (state.timeMs ?? Infinity) <= before.timeMs);
      expect(before.timeMs, what).toBeLessThan(timeMs ?? Infinity);
      // That of a state, or just before a base.
      expect(before.timeMs % MINUTE_MS, what).toBeOneOf([0, MINUTE_MS - 1]);
      expect(before.lastSegment, what).toBe(newest?.lastSegment ?? "");
    }
    for (const [at, key] of [...spoiled].entries())
      await storage.put(key, bodies[at] ?? new Uint8Array());
  }
}, 60_000);

test("a restore is refused when a segment does not continue the one before it", async () => {
  using archive = makeArchive();
  for (let start = 0; start < 2; start += 1) await archive.serve(3);
  const previousEnd = (await archive.keys("log/00000001/")).length - 2;
  await archive.changeHead(generationKey(2), { previousEnd });
  const why = /: log\/00000002\/.* does not continue the one before it/;
  await expectRejection(archive.restore(), "operator", why);
});

test("a restore names the first segment of a missing block of 1,000", async () => {
  using archive = makeArchive();
  await archive.serve(3);
  const own = await archive.keys("log/");
  const closed = own.at(-1) ?? "";
  // As if many segments were in between.
  const far = slotKey({ generation: 1, number: 7_001 });
  await archive.storage.put(far, await archive.body(closed));
  await archive.changeHead(far, { number: 7_001, confirmed: 7_000 });
  await archive.storage.remove([closed]);
  await adviceOf(archive.restore(), `segment ${own.length} of generation 1 is missing`);
  await archive.storage.remove(own);
  await expectRejection(archive.restore(), "operator", /^the archive is damaged: segment 1 /);
});

test("a restore of an earlier time continues an archive that lacks a segment before a damaged one", async () => {
  using archive = makeArchive();
  await archive.serve(5);
  const [missing = "", damaged = ""] = (await archive.segments()).slice(-2);
  await archive.lose(missing);
  await archive.clear(damaged);
  const time = await adviceOf(archive.restore(), expect.anything());
  await using server = await archive.start({ path: await archive.restoreOther(time) });
  await server.write(3);
  expect(await archive.restore()).toEqual(server.content());
});

test("a segment is refused if any byte of it has changed", async () => {
  using archive = makeArchive();
  await archive.serve(1);
  const key = (await archive.segments()).at(-1) ?? "";
  const id = parseKey(key) ?? { generation: 0, number: 0 };
  const sound = await archive.body(key);
  decodeSegment(id, sound);
  for (let at = 0; at < sound.length; at += 1) {
    const damaged = sound.slice();
    damaged[at] = (sound[at] ?? 0) ^ 1;
    expect(() => decodeSegment(id, damaged), `${at}`).toThrow(AppError);
  }
});
