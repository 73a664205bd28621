import { expect, test } from "bun:test";
import { fail } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { encodeJson } from "../../../src/sqlite/archive/format.ts";
import { heartbeatKey, parseKey } from "../../../src/sqlite/archive/keys.ts";
import { orNull, readHead, readHeartbeat } from "../../../src/sqlite/archive/read/catalog.ts";
import {
  ANNOUNCEMENT_KEY,
  readAnnouncement,
} from "../../../src/sqlite/archive/write/announcement.ts";
import { type Archive, makeArchive, makeClock, type Server } from "./archived.ts";

/** A quarter of TAKEOVER_SECONDS. */
const BEAT_MS = 2_500;

test.each([
  [true, BEAT_MS],
  [false, 5_000],
])("a heartbeat has and says its interval: with --standby %p, %p ms", async (standby, ms) => {
  using archive = makeArchive();
  const clock = makeClock();
  await using server = await archive.start({ clock, standby });
  await clock.passSlowly(50_000);
  const { sequence = 0, intervalMs } = (await readHeartbeat(archive.storage, 1)) ?? {};
  expect(intervalMs).toBe(ms);
  // Three belong to the start, and to its base. On a busy machine, some take until the next.
  expect(sequence).toBeWithin((0.7 * 50_000) / ms, 50_000 / ms + 4);
  expect(server.lines.filter((line) => line.includes("heartbeat"))).toEqual([]);
});

test("a number that no server writes is rejected before it becomes a time or a place in a file", async () => {
  using archive = makeArchive();
  await archive.serve(1);
  const announcement = { holder: "standby", timeMs: 1, lacks: null, canWrite: true };
  await archive.storage.put(ANNOUNCEMENT_KEY, encodeJson(announcement));
  const [segment = ""] = await archive.segments();
  const id = parseKey(segment) ?? fail("operator", segment);
  const damages: [key: string, values: object][] = [
    [ANNOUNCEMENT_KEY, { timeMs: -1 }],
    ...[0, 5_001].map((intervalMs): [string, object] => [heartbeatKey(1), { intervalMs }]),
    ...[{ offset: 2 ** 43 }, { ascendsFrom: 2 }].map((more): [string, object] => [segment, more]),
  ];
  const countUnread = async () => {
    const read = [
      orNull(readAnnouncement(archive.storage)),
      orNull(readHeartbeat(archive.storage, 1)),
      readHead(archive.storage, id),
    ];
    return (await Promise.all(read)).filter((found) => found === null).length;
  };
  for (const [key, values] of damages) {
    const body = await archive.body(key);
    expect(await countUnread()).toBe(0);
    await archive.changeHead(key, values);
    expect([key, values, await countUnread()]).toEqual([key, values, 1]);
    await archive.storage.put(key, body);
  }
});

/** Lets time pass until a server has begun anew. */
async function expectAnew(archive: Archive, server: Server, clock: ReturnType<typeof makeClock>) {
  const { lines } = server;
  const count = () => lines.filter((line) => line.startsWith("archive opened")).length;
  for (const before = count(); count() === before; ) await clock.passSlowly(BEAT_MS);
  const putBack = /^archive needs a new base .*an older state .* was put back/;
  expect(lines).toContainEqual(expect.stringMatching(putBack));
  await server.write(1);
  await archive.expectComplete(server);
}

test("a server that writes begins anew when the storage no longer has its last segments, and each heartbeat takes until the next", async () => {
  using archive = makeArchive();
  const clock = makeClock();
  let next: PromiseWithResolvers<void> | null = null;
  const put: ObjectStorage["put"] = async (key, body) => {
    await archive.storage.put(key, body);
    if (key !== heartbeatKey(1)) return;
    const isFirst = next === null;
    next?.resolve();
    next = Promise.withResolvers();
    // The first one is a part of the opening.
    if (!isFirst) await next.promise;
  };
  const storage = { ...archive.storage, put };
  await using server = await archive.start({ clock, standby: true, storage });
  const written = server.write(3);
  // The base waits for a heartbeat, too.
  while (Bun.peek.status(written) === "pending") await clock.passSlowly(BEAT_MS);
  await clock.passSlowly(4 * BEAT_MS);
  await archive.storage.remove((await archive.segments()).slice(-2));
  await server.write(1);
  await expectAnew(archive, server, clock);
  expect(server.content()).toMatchObject({ rows: 15 });
});

test("a server begins anew when the storage no longer has its generation, and waits when that is empty", async () => {
  using archive = makeArchive();
  const clock = makeClock();
  await archive.serve(1);
  const before = await archive.keys("");
  await using server = await archive.start({ clock, standby: true });
  await clock.passSlowly(4 * BEAT_MS);
  await archive.storage.remove((await archive.keys("")).filter((key) => !before.includes(key)));
  await expectAnew(archive, server, clock);
  const all = await archive.keys("");
  const bodies = await Promise.all(all.map(archive.body));
  await archive.storage.remove(all);
  await clock.passSlowly(8 * BEAT_MS);
  expect([server.isSuperseded(), await archive.keys("generations/")]).toEqual([false, []]);
  for (const [at, key] of all.entries())
    await archive.storage.put(key, bodies[at] ?? new Uint8Array());
  await expectAnew(archive, server, clock);
});

test("a server begins anew when the storage was put back to before it took over", async () => {
  using archive = makeArchive();
  const clock = makeClock();
  await archive.serve(2);
  const path = await archive.restoreOther(null);
  const before = await archive.keys("");
  await using server = await archive.start({ clock, path, standby: true });
  await server.write(2);
  await clock.passSlowly(4 * BEAT_MS);
  const [end = ""] = before.filter((key) => key.startsWith("log/")).slice(-1);
  const newer = (await archive.keys("")).filter((key) => !before.includes(key));
  // The log of the first server is not sealed, and it may be paused.
  await archive.storage.remove([end, ...newer]);
  await server.write(1);
  await expectAnew(archive, server, clock);
  expect(server.isSuperseded()).toBeFalse();
  const slot = parseKey(end) ?? fail("operator", end);
  expect(await readHead(archive.storage, slot)).toMatchObject({ kind: "seal" });
  expect(server.content()).toMatchObject({ rows: 18 });
});
