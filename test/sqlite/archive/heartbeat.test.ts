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
import {
  type Archive,
  contentOf,
  makeArchive,
  makeClock,
  restoreOther,
  type Server,
  serve,
  writeSegments,
} from "./archived.ts";

/** The shortest one. */
const TAKEOVER_MS = 3_000;

function announce({ storage }: Archive, timeMs: number): Promise<void> {
  const announcement = { holder: "standby", takeoverMs: TAKEOVER_MS, timeMs };
  return storage.put(ANNOUNCEMENT_KEY, encodeJson(announcement));
}

async function heartbeatOf({ storage }: Archive, generation = 1) {
  return (await readHeartbeat(storage, generation)) ?? fail("operator", "there is none");
}

async function untilBeats(archive: Archive, count: number, generation = 1): Promise<void> {
  const { sequence } = await heartbeatOf(archive, generation);
  while ((await heartbeatOf(archive, generation)).sequence < sequence + count) await Bun.sleep(1);
}

async function untilInterval(archive: Archive, intervalMs: number): Promise<void> {
  while ((await heartbeatOf(archive)).intervalMs !== intervalMs) await Bun.sleep(1);
}

test("a heartbeat is fast, and says so, while a standby announces itself", async () => {
  using archive = makeArchive();
  const clock = makeClock();
  let seen = "";
  const storage: ObjectStorage = {
    ...archive.storage,
    async get(key, ...rest) {
      const body = await archive.storage.get(key, ...rest);
      if (key === ANNOUNCEMENT_KEY) seen = new TextDecoder().decode(body ?? new Uint8Array());
      return body;
    },
  };
  await announce(archive, 1);
  await using server = await archive.start({ clock, storage });
  await untilInterval(archive, TAKEOVER_MS / 4);
  clock.pass(59_000);
  await announce(archive, 2);
  while (!seen.includes('"timeMs":2')) await Bun.sleep(1);
  clock.pass(59_000);
  // A damaged one says nothing.
  await archive.clear(ANNOUNCEMENT_KEY);
  while (seen !== "") await Bun.sleep(1);
  await untilBeats(archive, 2);
  expect((await heartbeatOf(archive)).intervalMs).toBe(TAKEOVER_MS / 4);
  clock.pass(2_000);
  await untilInterval(archive, 5_000);
  expect(server.lines.filter((line) => line.includes("heartbeat"))).toEqual([]);
});

test("a number that no server writes is rejected before it becomes a time or a place in a file", async () => {
  using archive = makeArchive();
  await serve(archive, 1);
  const [segment = ""] = await archive.segments();
  const damages: [key: string, values: object][] = [
    ...[1, 2_999, 300_001].map((takeoverMs): [string, object] => [
      ANNOUNCEMENT_KEY,
      { takeoverMs },
    ]),
    ...[0, 5_001].map((intervalMs): [string, object] => [heartbeatKey(1), { intervalMs }]),
    ...[{ offset: 2 ** 43 }, { ascendsFrom: 2 }].map((values): [string, object] => [
      segment,
      values,
    ]),
  ];
  await announce(archive, 1);
  const id = parseKey(segment) ?? fail("operator", segment);
  const read = () =>
    Promise.all([
      orNull(readAnnouncement(archive.storage)),
      orNull(readHeartbeat(archive.storage, 1)),
      readHead(archive.storage, id),
    ]);
  for (const [key, values] of damages) {
    const body = await archive.body(key);
    expect((await read()).filter((found) => found === null)).toHaveLength(0);
    await archive.changeHead(key, values);
    expect([key, values, (await read()).filter((found) => found === null).length]).toEqual([
      key,
      values,
      1,
    ]);
    await archive.storage.put(key, body);
  }
});

const putBack = expect.stringMatching(/^archive needs a new base .*an older state .* was put back/);

async function untilOpened({ lines }: Server, count: number): Promise<void> {
  while (lines.filter((line) => line.startsWith("archive opened")).length < count)
    await Bun.sleep(1);
}

test("a server that writes begins anew when the storage no longer has its last segments, and each heartbeat takes until the next", async () => {
  using archive = makeArchive();
  await announce(archive, 1);
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
  await using server = await archive.start({ storage: { ...archive.storage, put } });
  await writeSegments(server, 3);
  await untilBeats(archive, 2);
  await archive.storage.remove((await archive.segments()).slice(-2));
  await writeSegments(server, 1);
  await untilOpened(server, 2);
  expect(server.lines).toContainEqual(putBack);
  await writeSegments(server, 1);
  await archive.expectComplete(server);
  expect(contentOf(server.db)).toMatchObject({ rows: 15 });
});

test("a server begins anew when the storage no longer has its generation, and waits when that is empty", async () => {
  using archive = makeArchive();
  await serve(archive, 1);
  await announce(archive, 1);
  const before = await archive.keys("");
  let isEmpty = false;
  let looks = 0;
  const storage: ObjectStorage = {
    ...archive.storage,
    list(prefix, ...rest) {
      if (isEmpty && prefix === "generations/") looks += 1;
      return archive.storage.list(prefix, ...rest);
    },
  };
  await using server = await archive.start({ storage });
  await untilBeats(archive, 2, 2);
  await archive.storage.remove((await archive.keys("")).filter((key) => !before.includes(key)));
  await untilOpened(server, 2);
  expect(server.lines).toContainEqual(putBack);
  await archive.expectComplete(server);
  const all = await archive.keys("");
  const bodies = await Promise.all(all.map(archive.body));
  await archive.storage.remove(all);
  isEmpty = true;
  // The second one, after the first has found nothing.
  while (looks < 2) await Bun.sleep(1);
  expect(server.isSuperseded()).toBeFalse();
  for (const [at, key] of all.entries())
    await archive.storage.put(key, bodies[at] ?? new Uint8Array());
  await untilOpened(server, 3);
  await archive.expectComplete(server);
});

test("a server begins anew when the storage was put back to before it took over", async () => {
  using archive = makeArchive();
  {
    await using first = await archive.start();
    await writeSegments(first, 2);
    await archive.untilBases(1);
  }
  const path = await restoreOther(archive, null);
  const before = await archive.keys("");
  await announce(archive, 1);
  await using server = await archive.start({ path });
  await writeSegments(server, 2);
  await untilBeats(archive, 2, 2);
  const [end = ""] = before.filter((key) => key.startsWith("log/")).slice(-1);
  const newer = (await archive.keys("")).filter((key) => !before.includes(key));
  // The log of the first server is not sealed, and it may be paused.
  await archive.storage.remove([end, ...newer]);
  await writeSegments(server, 1);
  await untilOpened(server, 2);
  expect(server.lines).toContainEqual(putBack);
  expect(server.isSuperseded()).toBeFalse();
  expect(await readHead(archive.storage, parseKey(end) ?? fail("operator", end))).toMatchObject({
    kind: "seal",
  });
  await archive.expectComplete(server);
  expect(contentOf(server.db)).toMatchObject({ rows: 15 });
});
