// What an archive can restore when segments are late, or were written by several servers.
import { expect, test } from "bun:test";
import { copyFileSync } from "node:fs";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { expectRejection } from "../../support/expect-error.ts";
import { makeArchive, makeClock } from "./archived.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

test("restore of a time has what was written until then when the clock was ahead before", async () => {
  using archive = makeArchive();
  let nowMs = Date.parse("2026-11-01T00:00:00Z");
  const options = { nowMs: () => nowMs };
  let middle: unknown;
  {
    await using server = await archive.start(options);
    await server.write(4);
    middle = server.content();
    nowMs += 10_000;
    await server.write(4);
  }
  nowMs -= 8_000;
  await using server = await archive.start(options);
  await server.write(4);
  expect(server.lines[0]).toContain('"continued":true');
  expect(server.lines).toContain(
    `clock was ahead {"until":"${new Date(nowMs + 8_000).toISOString()}"}`,
  );
  expect(await archive.restore(new Date(nowMs - 1_000))).toEqual(middle);
  for (const ms of [0, 3_000, 8_000])
    expect(await archive.restore(new Date(nowMs + ms))).toEqual(server.content());
});

test("restore finds every state of a server whose clock is ahead at first and often later, by its time", async () => {
  using archive = makeArchive();
  let nowMs = Date.parse("2026-11-02T00:00:00Z");
  const clock = makeClock();
  await using server = await archive.start({ nowMs: () => nowMs, clock, keepMs: 7 * DAY_MS });
  await server.untilComplete();
  nowMs -= 24 * HOUR_MS;
  await archive.untilBases(2);
  const states: { at: Date; content: unknown }[] = [];
  const write = async (aheadMs: number) => {
    const { length } = await archive.keys("bases/");
    clock.pass(HOUR_MS);
    nowMs += aheadMs;
    await server.write(2);
    // A deletion is due.
    await server.untilTick();
    nowMs += 10_000 - aheadMs;
    // It is written when the clock is set back, and has the right time.
    if (aheadMs > 0) await archive.untilBases(length + 1);
    states.push({ at: new Date(nowMs), content: server.content() });
    nowMs += 10_000;
  };
  for (const aheadMs of [0, 40 * DAY_MS, 0, 0, HOUR_MS, 0]) await write(aheadMs);
  for (const { at, content } of states) expect(await archive.restore(at)).toEqual(content);
  // Only the first step back has a base: two programs may set the clock by turns.
  const { length } = await archive.keys("bases/");
  for (let step = 0; step < 5; step += 1) {
    nowMs += DAY_MS;
    await server.write(1);
    nowMs -= DAY_MS;
    await archive.untilBases(length + 1);
    await server.untilTick();
  }
  expect(await archive.keys("bases/")).toHaveLength(length + 1);
});

test("a restored database continues the archive without a base, unless another server has done so since", async () => {
  using archive = makeArchive();
  await archive.serve(3);
  const path = await archive.restoreOther(null);
  const late = archive.at("c.db");
  for (const suffix of ["", "-archive"]) copyFileSync(path + suffix, late + suffix);
  {
    await using server = await archive.start({ path });
    await server.write(3);
    expect(server.lines[0]).toContain('"continued":true');
    expect(await archive.restore()).toEqual(server.content());
  }
  for (const other of [late, archive.path])
    await expectRejection(
      archive.start({ path: other }),
      "operator",
      /^another server has continued the archive$/,
    );
});

test("a restored database cannot continue the archive when another server has written to it during the restore", async () => {
  using archive = makeArchive();
  let path = "";
  {
    await using server = await archive.start();
    await server.write(3);
    const storage: ObjectStorage = {
      ...archive.storage,
      async get(key) {
        if (key.startsWith("chunks/")) await server.write(3);
        return archive.storage.get(key);
      },
    };
    path = await archive.restoreOther(null, storage);
  }
  const late = archive.start({ path });
  await expectRejection(late, "operator", /^another server has continued the archive$/);
});

test("a restored database of an earlier time begins a new history, which is missed if its base is deleted, and the old one is kept", async () => {
  using archive = makeArchive();
  let nowMs = Date.parse("2026-11-01T00:00:00Z");
  const options = { nowMs: () => nowMs };
  let abandoned: unknown;
  {
    await using server = await archive.start(options);
    await server.write(3);
    nowMs += HOUR_MS;
    await server.write(3);
    abandoned = server.content();
  }
  const path = await archive.restoreOther(new Date(nowMs - 1));
  nowMs += HOUR_MS;
  await using server = await archive.start({ ...options, path });
  expect(server.lines[0]).toContain('"continued":false');
  await server.write(1);
  expect(await archive.restore()).toEqual(server.content());
  const old = new Date(nowMs - 1);
  expect(await archive.restore(old)).toEqual(abandoned);
  await archive.storage.remove((await archive.keys("bases/")).slice(1));
  const warning =
    "what generation 2 has written since 2026-11-01T02:00:00.000Z is not restored, because no base has it";
  for (const at of [null, new Date(nowMs)])
    expect(await archive.restore(at, [warning])).toEqual(abandoned);
  expect(await archive.restore(old)).toEqual(abandoned);
});
