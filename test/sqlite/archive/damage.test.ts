// What an archive can restore when something in it is missing or damaged.
import { describe, expect, test } from "bun:test";
import { AppError } from "../../../src/base/error.ts";
import {
  decodeJson,
  decodeSegment,
  encodeJson,
  type Generation,
} from "../../../src/sqlite/archive/format.ts";
import {
  generationKey,
  heartbeatKey,
  parseKey,
  slotKey,
} from "../../../src/sqlite/archive/keys.ts";
import { expectRejection } from "../../support/expect-error.ts";
import {
  type Archive,
  adviceOf,
  contentOf,
  makeArchive,
  restoreOther,
  serve,
  writeSegments,
} from "./archived.ts";

/** Three servers, one after the other. @returns two states of each: before its last segment, and at its end */
async function serveThrice(archive: Archive): Promise<unknown[]> {
  const states: unknown[] = [];
  let nowMs = Date.parse("2026-11-01T00:00:00Z");
  for (let start = 0; start < 3; start += 1) {
    await using server = await archive.start({ nowMs: () => nowMs });
    for (const segments of [3, 1]) {
      nowMs += 1_000;
      await writeSegments(server, segments);
      states.push(contentOf(server.db));
    }
  }
  return states;
}

const lastSegment = async ({ segments }: Archive) => (await segments()).at(-1) ?? "";

const broken = (key: string) => `${key} is missing or damaged`;

/** Each damages an archive, and returns how it is named, with the state that can be restored then. */
const damages: readonly (readonly [string, (archive: Archive) => unknown, state: number])[] = [
  ["the last segment is missing", async (archive) => archive.lose(await lastSegment(archive)), 4],
  ["the last segment is damaged", async (archive) => archive.clear(await lastSegment(archive)), 4],
  [
    "the end of a generation is missing",
    async ({ storage, keys, lose }) => {
      const [lost = "", closed = ""] = (await keys("log/00000001/")).slice(-2);
      await storage.remove([closed]);
      return lose(lost);
    },
    0,
  ],
  [
    "a record is missing",
    ({ storage }) => storage.remove([generationKey(2)]).then(() => broken(generationKey(2))),
    1,
  ],
  [
    "the newest record is damaged",
    ({ clear }) => clear(generationKey(3)).then(() => broken(generationKey(3))),
    3,
  ],
  [
    "records are missing, and only the logs say that there was one",
    async ({ storage, keys }) => {
      await storage.remove((await keys("generations/")).slice(1));
      return broken(generationKey(2));
    },
    1,
  ],
  [
    "the heartbeat of a server that was killed is damaged",
    async ({ storage, keys, clear }) => {
      await storage.remove((await keys("log/")).slice(-1));
      await clear(heartbeatKey(3));
      return broken(heartbeatKey(3));
    },
    5,
  ],
  [
    "the WAL was restarted, and parts before that are not in the history",
    async ({ storage, body }) => {
      const key = generationKey(2);
      const record = decodeJson<Generation>(key, await body(key));
      const previousEnd = record.previousEnd - 1;
      await storage.put(key, encodeJson({ ...record, previousEnd }));
      return expect.stringMatching(/^log\/00000002\/.* does not continue the one before it$/);
    },
    0,
  ],
];

describe("restore", () => {
  test.each(damages)("names a time before it if %s", async (_what, damage, state) => {
    using archive = makeArchive();
    const states = await serveThrice(archive);
    const time = await adviceOf(archive.restore(), await damage(archive));
    expect(await archive.restore(time)).toEqual(states[state]);
    const later = archive.restore(new Date(time.getTime() + 2_000));
    await expectRejection(later, "operator", /: restore a state before it /);
  });

  test("needs nothing of the first generation but its log, and says what is missing", async () => {
    using archive = makeArchive();
    const states = await serveThrice(archive);
    await archive.storage.remove([generationKey(1)]);
    expect(await archive.restore(null, [broken(generationKey(1))])).toEqual(states[5]);
  });

  test("names the first segment of a missing block of 1,000", async () => {
    using archive = makeArchive();
    await serve(archive, 3);
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

  test.each([
    ["whose last segment is damaged", false],
    ["that lacks a segment before a damaged one", true],
  ])("of an earlier time continues an archive %s", async (_title, isMissing) => {
    using archive = makeArchive();
    await serve(archive, 5);
    const [missing = "", damaged = ""] = (await archive.segments()).slice(-2);
    if (isMissing) await archive.lose(missing);
    await archive.clear(damaged);
    const time = await adviceOf(archive.restore(), expect.anything());
    const path = await restoreOther(archive, time);
    await using server = await archive.start({ path });
    await writeSegments(server, 3);
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });
});

test("a segment is refused if any byte of it has changed", async () => {
  using archive = makeArchive();
  await serve(archive, 1);
  const key = await lastSegment(archive);
  const id = parseKey(key) ?? { generation: 0, number: 0 };
  const sound = await archive.body(key);
  decodeSegment(id, sound);
  for (let at = 0; at < sound.length; at += 1) {
    const damaged = sound.slice();
    damaged[at] = (sound[at] ?? 0) ^ 1;
    expect(() => decodeSegment(id, damaged), `${at}`).toThrow(AppError);
  }
});
