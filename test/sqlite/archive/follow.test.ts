// A standby: its copy follows the log of another server, and it takes over only when that one can store nothing more.

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { closeSync, existsSync, openSync, rmSync } from "node:fs";
import { AppError, fail } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { follow } from "../../../src/sqlite/archive/follow/follow.ts";
import { prepareCopy } from "../../../src/sqlite/archive/follow/prepare.ts";
import { encodeJson, type Generation } from "../../../src/sqlite/archive/format.ts";
import { heartbeatKey, parseKey, prefixes, slotKey } from "../../../src/sqlite/archive/keys.ts";
import { readAnnouncement } from "../../../src/sqlite/archive/write/announcement.ts";
import { createRecord, seal } from "../../../src/sqlite/archive/write/log.ts";
import { expectRejection } from "../../support/expect-error.ts";
import type { Archive, Server } from "./archived.ts";
import { contentOf, defaults, filesOf, makeArchive, makeClock } from "./archived.ts";

/**
 * Restores a copy, or continues with the one that is there, and follows. No time passes before `pass`.
 * @param onSleep is called before each look at the log but the first
 */
async function startStandby(
  archive: Archive,
  { storage = archive.storage, onSleep = (): unknown => null, requireWritable = () => {} } = {},
) {
  const path = archive.at("b.db");
  const stopping = new AbortController();
  const lines: string[] = [];
  const reasons: unknown[] = [];
  let isPassing = false;
  const look = async () => {
    await onSleep();
    await Bun.sleep(0);
  };
  const machine = makeClock(look, () => isPassing);
  const log = (_level: string, event: string, fields: { readonly reason?: unknown } = {}) => {
    lines.push(event);
    reasons.push(...(fields.reason === undefined ? [] : [fields.reason]));
  };
  const files = filesOf(path, { holder: "b.db", lockIdentity: () => path, requireWritable });
  const common = { files, machine, signal: stopping.signal, log };
  const own = { ...defaults, commit: "sync", standby: true } as const;
  const server = { ...common, ...own, storage };
  const start = await prepareCopy(server);
  if (start === null) throw new Error("no other server was found");
  const db = new Database(path, { readwrite: true, strict: true });
  db.run("pragma busy_timeout = 5000");
  db.prepare("select 1 from t").get();
  const open = (suffix: string) => openSync(path + suffix, "r+");
  const descriptors = { database: open(""), wal: open("-wal"), index: open("-shm") };
  const database = files.open(descriptors);
  const ages: number[] = [];
  const following = follow({ ...server, onFresh: (ageMs) => ages.push(ageMs), database, start });
  const ended = following.finally(() => {
    db.close(true);
    for (const descriptor of Object.values(descriptors)) closeSync(descriptor);
  });
  const hasAll = ended.then((taken) => taken.hasAll);
  hasAll.catch(() => {});
  return {
    lines,
    reasons: () => reasons,
    clock: machine,
    /** When the copy had everything. */
    ages,
    /** From now on, looks take time. */
    pass() {
      isPassing = true;
    },
    /** Waits until readers of the copy see what the server has. */
    async untilSame({ db: original }: Server) {
      while (!Bun.deepEquals(contentOf(db), contentOf(original))) await Bun.sleep(1);
    },
    async untilLooks(count: number) {
      for (const before = machine.sleeps(); machine.sleeps() < before + count; ) await Bun.sleep(1);
    },
    /** Resolves when this server may write: whether it has everything. */
    ended: hasAll,
    async stop() {
      stopping.abort(new AppError("operator", "stopped"));
      await expectRejection(ended, "operator", "stopped");
    },
  };
}

async function startServer(archive: Archive, options: Parameters<Archive["start"]>[0] = {}) {
  const server = await archive.start({ commit: "sync", ...options });
  await server.write(1);
  await archive.untilBases(1);
  return server;
}

function beat({ storage }: Archive, changed: object = {}, generation = 1) {
  const beats = { sequence: 1, intervalMs: 5_000, hasBase: true };
  const state = { generation, writer: "a", confirmed: 0, ...beats, ...changed };
  return storage.put(heartbeatKey(generation), encodeJson(state));
}

/** Begins the second generation. */
function record({ storage }: Archive, log: Pick<Generation, "previousEnd" | "parent" | "commit">) {
  const names = { archive: "archive", name: "other", identity: "other", holder: "other" };
  return createRecord(storage, { number: 2, ...names, ...log });
}

test("a standby whose disk cannot be written says so, and takes over only when it can", async () => {
  using archive = makeArchive();
  await archive.serve(2, { commit: "sync" });
  let isFull = true;
  const requireWritable = () => {
    if (isFull) fail("unavailable", "b.db: full");
  };
  const standby = await startStandby(archive, { requireWritable });
  const announced = async () => (await readAnnouncement(archive.storage))?.canWrite;
  while ((await announced()) !== false) await Bun.sleep(1);
  standby.pass();
  await standby.untilLooks(40);
  expect(standby.lines).toEqual(["archive restored", "following", "archive not followed"]);
  isFull = false;
  expect(await standby.ended).toBeTrue();
});

for (const end of ["open", "sealed at a start", "closed"])
  test(`a standby in async mode takes over a closed log, and waits for a promotion of any other: ${end}`, async () => {
    using archive = makeArchive();
    await using server = await startServer(archive, { commit: "async" });
    const slot = { generation: 1, number: (await archive.segments()).length + 1 };
    const sealer = { writer: "start", holder: "a", timeMs: 0 };
    if (end === "sealed at a start") await seal(archive.storage, slot, sealer);
    const standby = await startStandby(archive);
    standby.pass();
    await standby.untilLooks(100);
    expect(standby.lines).not.toContain("taking over");
    if (end === "closed") await server[Symbol.asyncDispose]();
    else await archive.promote();
    // Then nothing is lost.
    expect(await standby.ended).toBe(end === "closed");
  });

test("a standby does not take over with a hole, and is restored again when it stays", async () => {
  using archive = makeArchive();
  const server = await startServer(archive);
  const [last] = (await archive.segments()).slice(-1);
  const number = Number(last?.slice(-10)) + 1;
  const standby = await startStandby(archive, {
    storage: {
      ...archive.storage,
      get: async (key, maxBytes) =>
        key === slotKey({ generation: 1, number }) ? null : archive.storage.get(key, maxBytes),
    },
  });
  await server.write(1);
  await server[Symbol.asyncDispose]();
  await beat(archive, { confirmed: number });
  standby.pass();
  await expectRejection(standby.ended, "unavailable", /is missing$/);
  // Again, a minute later.
  const unique = [...new Set(standby.lines)];
  expect(unique).toEqual(["archive restored", "following", "archive not followed"]);
  // The only copy may be the one that is left.
  let areAway = true;
  const get: ObjectStorage["get"] = async (key, maxBytes) =>
    areAway && key.startsWith(prefixes.chunks) ? null : archive.storage.get(key, maxBytes);
  const again = await startStandby(archive, {
    storage: { ...archive.storage, get },
    onSleep() {
      expect(existsSync(archive.at("b.db"))).toBeTrue();
      areAway = false;
    },
  });
  await again.stop();
  const lines = ["archive not followed", "archive restored", "archive followed again", "following"];
  expect(again.lines).toEqual(lines);
});

test("a standby is restored again when its file is deleted", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive);
  const standby = await startStandby(archive);
  await standby.untilSame(server);
  rmSync(archive.at("b.db"));
  await expectRejection(standby.ended, "unavailable", "its file was deleted");
  const again = await startStandby(archive);
  await again.untilSame(server);
  await again.stop();
  expect(again.lines).toEqual(["archive restored", "following"]);
});

test("a standby does not seal a log in which a segment is missing that a later one confirms", async () => {
  using archive = makeArchive();
  let [isCut, isFrozen] = [false, false];
  const write: ObjectStorage["put"] = (key, body) =>
    isFrozen ? new Promise(() => {}) : archive.storage.put(key, body);
  await using server = await startServer(archive, { storage: { ...archive.storage, put: write } });
  const get: ObjectStorage["get"] = async (key, maxBytes) =>
    isCut && key.startsWith("log/") ? null : archive.storage.get(key, maxBytes);
  const standby = await startStandby(archive, { storage: { ...archive.storage, get } });
  await standby.untilSame(server);
  isCut = true;
  for (let count = 0; count < 3; count += 1) await server.write(1);
  await archive.lose((await archive.segments()).at(-2) ?? "");
  isFrozen = true;
  // Not known from a heartbeat.
  await beat(archive);
  isCut = false;
  standby.pass();
  await standby.untilLooks(60);
  await standby.stop();
  expect(standby.lines).not.toContain("taking over");
});

test("a copy that is ahead of an archive which was put back begins it anew when it takes over", async () => {
  using archive = makeArchive();
  const server = await startServer(archive);
  const standby = await startStandby(archive);
  const before = (await archive.segments()).length;
  for (let count = 0; count < 3; count += 1) await server.write(1);
  await standby.untilSame(server);
  const content = server.content();
  await server.archiver.committed(0);
  const newer = (await archive.segments()).slice(before);
  await archive.storage.remove(newer);
  await beat(archive);
  standby.pass();
  expect(await standby.ended).toBe(true);
  await server[Symbol.asyncDispose]();
  await using next = await archive.start({ path: archive.at("b.db"), commit: "sync" });
  await archive.untilBases(2);
  expect(next.content()).toEqual(content);
  expect(await archive.restore()).toEqual(content);
});

for (const [title, isSealed] of [
  ["", false],
  [" that it has sealed itself", true],
] as const)
  test(`a copy that is ahead of a log${title} is not continued when another server continues that`, async () => {
    using archive = makeArchive();
    await using server = await startServer(archive);
    const standby = await startStandby(archive);
    const number = (await archive.segments()).length;
    await server.write(1);
    await standby.untilSame(server);
    const end = (await archive.segments()).length;
    await archive.storage.remove((await archive.segments()).slice(number));
    const sealer = { writer: "other", holder: "other", timeMs: 0 };
    await seal(archive.storage, { generation: 1, number: number + 1 }, sealer);
    if (isSealed) await seal(archive.storage, { generation: 1, number: end + 1 }, sealer);
    const parent = { generation: 1, number };
    await record(archive, { previousEnd: number, parent, commit: "sync" });
    standby.pass();
    await expectRejection(standby.ended, "operator", /^another server has continued the archive/);
  });

test.each([
  ["whose base was deleted", true, "sync", /^generation 2 has no base any more$/],
  ["that may have acknowledged writes", false, "async", /or `user-api archive promote`/],
] as const)("a standby gives up no generation %s", async (_title, hasBase, commit, reason) => {
  using archive = makeArchive();
  const server = await startServer(archive);
  const standby = await startStandby(archive);
  await standby.untilSame(server);
  await server[Symbol.asyncDispose]();
  // As a server has left it that has begun anew, and was killed.
  await record(archive, { previousEnd: (await archive.segments()).length, parent: null, commit });
  await beat(archive, { writer: "other", hasBase }, 2);
  standby.pass();
  await standby.untilLooks(200);
  expect(standby.reasons().at(-1)).toMatch(reason);
  if (hasBase) return await standby.stop();
  await archive.promote();
  expect(await standby.ended).toBe(false);
});

test("the age of a copy is known although the log does not end, because many segments are read at the same time", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive);
  const { length } = await archive.segments();
  let [visible, rounds, reads, most] = [length, 0, 0, 0];
  let passOnce = (_ms: number) => {};
  const get: ObjectStorage["get"] = async (key, maxBytes) => {
    if (key.startsWith(prefixes.heartbeats) && visible > length) {
      // Each round takes a second, and the server writes meanwhile.
      passOnce(1_000);
      rounds += 1;
      if (rounds > 6) visible = length + 260;
      most = Math.max(most, reads);
      reads = 0;
    }
    const number = parseKey(key)?.number ?? 0;
    if (number > length && maxBytes !== 1) reads += 1;
    return number > visible ? null : await archive.storage.get(key, maxBytes);
  };
  const standby = await startStandby(archive, { storage: { ...archive.storage, get } });
  passOnce = standby.clock.pass;
  while (standby.ages.length === 0) await Bun.sleep(1);
  for (let count = 0; count < 260; count += 1) await server.write(1);
  [standby.ages.length, reads, visible] = [0, 0, length + 160];
  await standby.untilSame(server);
  await standby.stop();
  expect(most).toBe(192);
  // As of a look ahead.
  expect(standby.ages.some((ageMs) => ageMs > 1_000 && ageMs < 4_000)).toBeTrue();
});
