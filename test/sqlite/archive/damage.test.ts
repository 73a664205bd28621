// What an archive can restore when something in it is missing or damaged.

import { describe, expect, test } from "bun:test";
import { decodeJson, encodeJson, type Generation } from "../../../src/sqlite/archive/format.ts";
import { generationKey, heartbeatKey, slotKey } from "../../../src/sqlite/archive/keys.ts";
import { expectRejection } from "../../support/expect-error.ts";
import { isLong } from "../../support/long.ts";
import {
  adviceOf,
  contentOf,
  makeArchive,
  restoreOther,
  serve,
  serveTwice,
  writeSegments,
} from "./archived.ts";

describe("restore", () => {
  test.each(["missing", "damaged"])(
    "names a time before a segment that is %s, and its server begins with a new base",
    async (what) => {
      using archive = makeArchive();
      const before = await serveTwice(archive, 3, 1);
      const key = (await archive.segments()).at(-1) ?? "";
      const problem = what === "missing" ? await archive.lose(key) : await archive.clear(key);
      const time = await adviceOf(archive.restore(), `the archive is damaged: ${problem}`);
      expect(await archive.restore(time)).toEqual(before.content);
      const later = new Date(time.getTime() + 1);
      await expectRejection(archive.restore(later), "operator", /: restore a state before it /);
      await using server = await archive.start();
      const reason = what === "missing" ? problem : `${key} is damaged`;
      expect(server.lines).toEqual([
        `archive needs a new base {"reason":"${reason}"}`,
        expect.stringContaining('"continued":false'),
      ]);
      await writeSegments(server, 3);
      expect(await archive.restore()).toEqual(contentOf(server.db));
      expect(await archive.restore(time)).toEqual(before.content);
    },
  );

  test("names a time before the end of a generation if that is missing", async () => {
    using archive = makeArchive();
    const before = await serveTwice(archive, 3, 3);
    await serve(archive, 3);
    const own = await archive.keys("log/00000001/");
    await archive.storage.remove(own.slice(before.segments));
    const what = `segment ${before.segments + 1} of generation 1 is missing`;
    const time = await adviceOf(archive.restore(), `the archive is damaged: ${what}`);
    expect(await archive.restore(time)).toEqual(before.content);
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
    const what = `segment ${own.length} of generation 1 is missing`;
    await adviceOf(archive.restore(), `the archive is damaged: ${what}`);
    await archive.storage.remove(own);
    await expectRejection(archive.restore(), "operator", /^the archive is damaged: segment 1 /);
  });

  test("names a record if all are missing, although only the logs say that there was one", async () => {
    using archive = makeArchive();
    await serveTwice(archive, 3, 3);
    await serve(archive, 3);
    await archive.storage.remove(await archive.keys("generations/"));
    const next = `${generationKey(2)} is missing or damaged`;
    await adviceOf(archive.restore(), `the archive is damaged: ${next}`);
  });

  test.each([1, 2, 3])(
    "names the record of generation %i of three if it is missing or damaged",
    async (number) => {
      using archive = makeArchive();
      const contents: unknown[] = [];
      for (let start = 0; start < 3; start += 1) {
        await serve(archive, 3);
        contents.push(await archive.restore());
        await Bun.sleep(2);
      }
      const key = generationKey(number);
      const body = await archive.body(key);
      const damages = [
        () => archive.storage.put(key, body.slice(1)),
        () => archive.storage.remove([key]),
      ];
      const problem = `${key} is missing or damaged`;
      for (const damage of damages) {
        await damage();
        // Nothing of the first one is needed.
        if (number === 1) expect(await archive.restore(null, [problem])).toEqual(contents[2]);
        else {
          const time = await adviceOf(archive.restore(), `the archive is damaged: ${problem}`);
          expect(await archive.restore(time)).toEqual(contents[number - 2]);
        }
      }
      await archive.storage.put(key, body);
      expect(await archive.restore()).toEqual(contents[2]);
    },
  );

  test("names the heartbeat of a server that was killed if it is missing or damaged", async () => {
    using archive = makeArchive();
    await serve(archive, 3);
    const [closed = ""] = (await archive.keys("log/")).slice(-1);
    await archive.storage.remove([closed]);
    const key = heartbeatKey(1);
    const damages = [() => archive.clear(key), () => archive.storage.remove([key])];
    for (const damage of damages) {
      await damage();
      const problem = `the archive is damaged: ${key} is missing or damaged`;
      await adviceOf(archive.restore(), problem);
    }
  });

  test("is refused when the header of a segment is damaged", async () => {
    using archive = makeArchive();
    await using server = await archive.start();
    await writeSegments(server, 3);
    for (const key of (await archive.segments()).slice(isLong ? 0 : 1, 2)) {
      const sound = await archive.body(key);
      const length = sound.indexOf(10) + 1;
      const header = new TextDecoder().decode(sound.subarray(0, length));
      let accepted = "";
      for (let at = 0; at < length; at += isLong ? 1 : 3) {
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
    const time = await adviceOf(archive.restore(), expect.stringContaining("is damaged: "));
    const path = await restoreOther(archive, time);
    await using server = await archive.start({ path });
    await writeSegments(server, 3);
    expect(await archive.restore()).toEqual(contentOf(server.db));
  });

  test("is refused when the WAL was restarted and parts before that are not in the history", async () => {
    using archive = makeArchive();
    for (let start = 0; start < 2; start += 1) await serve(archive, 4);
    const key = generationKey(2);
    const record = decodeJson<Generation>(key, await archive.body(key));
    const previousEnd = record.previousEnd - 1;
    await archive.storage.put(key, encodeJson({ ...record, previousEnd }));
    await expectRejection(
      archive.restore(),
      "operator",
      /^the archive is damaged: log\/00000002\/.* does not continue the one before it: /,
    );
  });
});
