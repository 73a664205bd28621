// The end of a log for a planned switch, and how an archive is read afterwards.

import { expect, test } from "bun:test";
import type { GenerationEvents } from "../../../src/sqlite/archive/context.ts";
import { encodeJson, MAX_SENDING, type SegmentHeader } from "../../../src/sqlite/archive/format.ts";
import { heartbeatKey, parseKey, slotKey } from "../../../src/sqlite/archive/keys.ts";
import { createProblems } from "../../../src/sqlite/archive/problems.ts";
import { readHead, readLog } from "../../../src/sqlite/archive/read/catalog.ts";
import { createOwnLog, fence, seal } from "../../../src/sqlite/archive/write/log.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";
import { makeArchive, makeClock } from "./archived.ts";

const first = { generation: 1, number: 1 };
const sealer = { writer: "sealer", holder: "operator", promoted: true, timeMs: 0 };

function segment(number: number, confirmed: number) {
  const slot = { kind: "segment", generation: 1, number, writer: "server", confirmed, timeMs: 0 };
  const end = { salt: "", offset: 0, checksum: "" };
  const place = { salt: "", offset: 0, end, previous: null, progress: null };
  return { ...slot, ...place, bytes: 0, sha256: "" } as SegmentHeader;
}

test("a promotion ends the log of a server that fills slots faster than they can be tried", async () => {
  const storage = createMemoryStorage();
  const generation = { number: 1, name: "server", holder: "" };
  const problems = createProblems(() => {}, makeClock());
  const events = { onSuperseded() {} } as unknown as GenerationEvents;
  const log = createOwnLog({ storage, problems, events }, generation);
  const slow: typeof storage = {
    ...storage,
    async create(...given) {
      for (let count = 0; count < 3 * MAX_SENDING && !log.isEnded(); count += 1)
        await log.append(segment(log.stored() + 1, log.stored()), new Uint8Array());
      return storage.create(...given);
    },
  };
  const from = await fence(slow, first, sealer);
  // Slot 42 was sent before: of those before it, the last seven may be empty.
  expect(from.number).toBe(42 - MAX_SENDING + 1);
  const last = await seal(slow, from, sealer);
  expect([log.isEnded(), log.stored()]).toEqual([true, last]);
  const { segments, ...end } = await readLog(storage, first);
  expect([segments.length, end.isSealed, end.loss]).toEqual([last, true, null]);
});

test("a log ends at its first seal when segments and a fence are behind it", async () => {
  const storage = createMemoryStorage();
  const beat = { generation: 1, writer: "server", confirmed: 3, sequence: 1, intervalMs: 5_000 };
  await storage.put(heartbeatKey(1), encodeJson(beat));
  // What was sent while segment 4 was not stored.
  for (let number = 1; number <= 3 + MAX_SENDING; number += 1)
    if (number !== 4)
      await storage.put(slotKey(segment(number, 0)), encodeJson(segment(number, 0)));
  const sealFrom = { generation: 1, number: 4 };
  const from = await fence(storage, sealFrom, sealer);
  const open = await readLog(storage, first);
  expect(open).toMatchObject({ isSealed: false, loss: null, sealFrom });
  expect(await seal(storage, from, sealer)).toBe(3);
  const { segments, ...end } = await readLog(storage, first);
  expect([segments.length, end.isSealed, end.loss]).toEqual([3, true, null]);
});

for (const hadEnded of [false, true])
  test(`a promotion disturbs neither a restore nor the next server when the log had ended: ${hadEnded}`, async () => {
    using archive = makeArchive();
    const { storage } = archive;
    if (hadEnded) await archive.serve(3);
    else {
      await using server = await archive.start();
      await server.write(3);
      expect(await archive.promote()).toMatchObject({ generation: 1, hadEnded });
    }
    // Behind the end.
    expect(await archive.promote()).toMatchObject({ generation: 1, hadEnded: true });
    const last = parseKey((await archive.segments()).at(-1) ?? "") ?? first;
    const slots = [1, 2].map((count) => ({ generation: 1, number: last.number + count }));
    const heads = await Promise.all(slots.map((slot) => readHead(storage, slot)));
    expect(heads.map((head) => head?.kind)).toEqual([hadEnded ? "closed" : "seal", "seal"]);
    // The second time, the end is that of a record.
    for (let time = 0; time < 2; time += 1) {
      const restored = await archive.restore();
      await using server = await archive.start();
      expect(server.lines[0]).toContain('"continued":true');
      expect(restored).toEqual(server.content());
      await server.write(1);
    }
  });

test("a promotion is refused when the end of the log is damaged or missing", async () => {
  using archive = makeArchive();
  const refused = () => archive.promote().catch(({ message }) => message);
  expect(await refused()).toBe("the archive is empty");
  await archive.serve(3);
  const last = (await archive.segments()).at(-1) ?? "";
  await archive.clear(last);
  expect(await refused()).toBe(`the archive is damaged: ${last} is damaged`);
  const missing = await archive.lose(last);
  expect(await refused()).toBe(`the archive is damaged: ${missing}`);
});
