// A standby: its copy follows the log of another server, and it takes over only when that one can store nothing more.

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { closeSync, existsSync, openSync, readdirSync, rmSync } from "node:fs";
import { AppError, fail } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { follow } from "../../../src/sqlite/archive/follow/follow.ts";
import { prepareCopy } from "../../../src/sqlite/archive/follow/prepare.ts";
import { encodeJson } from "../../../src/sqlite/archive/format.ts";
import {
  generationKey,
  heartbeatKey,
  parseKey,
  prefixes,
  slotKey,
} from "../../../src/sqlite/archive/keys.ts";
import type { Machine } from "../../../src/sqlite/archive/machine.ts";
import { readAnnouncement } from "../../../src/sqlite/archive/write/announcement.ts";
import { createRecord, seal } from "../../../src/sqlite/archive/write/log.ts";
import { systemMachine } from "../../../src/sqlite/disk/system-machine.ts";
import { expectRejection } from "../../support/expect-error.ts";
import {
  type Archive,
  contentOf,
  filesOf,
  makeArchive,
  promoteTo,
  type Server,
  serve,
} from "./archived.ts";

interface StandbyOptions {
  readonly storage?: ObjectStorage;
  /** Called before each look at the log but the first. */
  readonly onSleep?: (looks: number) => unknown;
  readonly wasSuperseded?: boolean;
  readonly requireWritable?: () => void;
}

/** Restores a copy, or continues with the one that is there, and follows. No time passes before `pass`. */
async function startStandby(archive: Archive, options: StandbyOptions = {}) {
  const { storage = archive.storage, onSleep = () => {}, wasSuperseded = false } = options;
  const path = archive.at("b.db");
  const stopping = new AbortController();
  const lines: string[] = [];
  const reasons: unknown[] = [];
  let nowMs = 0;
  let isPassing = false;
  let looks = 0;
  const machine: Machine = {
    ...systemMachine,
    monotonicMs: () => nowMs,
    async sleep(ms, signal) {
      // Not a look.
      if (signal === undefined) return await Bun.sleep(ms);
      looks += 1;
      if (isPassing) nowMs += ms;
      await onSleep(looks);
      await Bun.sleep(1);
    },
  };
  let takenOverMs = 0;
  const log = (_level: string, event: string, fields: { readonly reason?: unknown } = {}) => {
    lines.push(event);
    reasons.push(...(fields.reason === undefined ? [] : [fields.reason]));
    if (event === "taking over") takenOverMs = nowMs;
  };
  const { requireWritable = () => {} } = options;
  const files = filesOf(path, { holder: "b.db", lockIdentity: () => path, requireWritable });
  const common = { files, machine, signal: stopping.signal, log };
  const settings = { takeoverMs: 10_000, wasSuperseded, commit: "sync", standby: true } as const;
  const server = { ...common, ...settings, storage };
  const start = await prepareCopy({ ...server, restore: "never" });
  if (start === null) throw new Error("no other server was found");
  const db = new Database(path, { readwrite: true, strict: true });
  db.run("pragma busy_timeout = 5000");
  db.prepare("select 1 from t").get();
  const open = (suffix: string) => openSync(path + suffix, "r+");
  const descriptors = { database: open(""), wal: open("-wal"), index: open("-shm") };
  const database = files.open(descriptors);
  const ages: number[] = [];
  const onFresh = (ageMs: number) => void ages.push(ageMs);
  const following = follow({ ...server, onFresh, database, start });
  const ended = following.finally(() => {
    db.close(true);
    for (const descriptor of Object.values(descriptors)) closeSync(descriptor);
  });
  const hasAll = ended.then((taken) => taken.hasAll);
  hasAll.catch(() => {});
  return {
    lines,
    reasons: () => reasons,
    /** When the copy had everything. */
    ages,
    looks: () => looks,
    takenOverMs: () => takenOverMs,
    /** From now on, looks take time. */
    pass() {
      isPassing = true;
    },
    passOnce(ms: number) {
      nowMs += ms;
    },
    /** Waits until readers of the copy see what the server has. */
    async untilSame({ db: original }: Server) {
      while (!Bun.deepEquals(contentOf(db), contentOf(original))) await Bun.sleep(1);
    },
    async untilLooks(count: number) {
      while (looks < count) await Bun.sleep(1);
    },
    /** Resolves when this server may write: whether it has everything. */
    ended: hasAll,
    /** Resolves with how it continues the archive. */
    continued: () => ended.then(({ continuation }) => continuation),
    async stop() {
      stopping.abort(new AppError("operator", "stopped"));
      await expectRejection(ended, "operator", "stopped");
    },
    /** Of the copy, when it is closed. */
    content() {
      using closed = new Database(path);
      expect(closed.prepare("pragma integrity_check").get()).toEqual({ integrity_check: "ok" });
      return contentOf(closed);
    },
  };
}

async function startServer(archive: Archive, options: Parameters<Archive["start"]>[0] = {}) {
  const server = await archive.start({ commit: "sync", ...options });
  await write(server);
  await archive.untilBases(1);
  return server;
}

async function write(server: Server, rows = 3) {
  server.insert(rows);
  await server.untilComplete();
}

function freezable(storage: ObjectStorage) {
  let thawed = Promise.resolve();
  let thaw = () => {};
  const wait =
    <Args extends unknown[], Result>(call: (...args: Args) => Promise<Result>) =>
    async (...args: Args) => {
      await thawed;
      return call(...args);
    };
  const frozen: ObjectStorage = {
    ...storage,
    put: wait(storage.put),
    create: wait(storage.create),
  };
  return {
    storage: frozen,
    freeze() {
      const { promise, resolve } = Promise.withResolvers<void>();
      thawed = promise;
      thaw = resolve;
    },
    thaw: () => thaw(),
  };
}

function beat({ storage }: Archive, sequence: number, confirmed = 0) {
  const state = { generation: 1, writer: "a", confirmed, sequence, intervalMs: 5_000 };
  return storage.put(heartbeatKey(1), encodeJson(state));
}

test("readers of a copy see all commits, when the WAL restarts and when the standby starts again", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive);
  for (const line of ["archive restored", "following"]) {
    const standby = await startStandby(archive);
    for (let restarts = 0; restarts < 3; restarts += 1) {
      await write(server, 20);
      await standby.untilSame(server);
      server.archiver.checkpoint();
      await write(server);
      await standby.untilSame(server);
    }
    await standby.stop();
    expect(standby.lines[0]).toBe(line);
    await write(server, 20);
  }
  expect(readdirSync(archive.at("")).filter((name) => name.includes("diverged"))).toEqual([]);
});

test.each([
  [10, false],
  [20, true],
])(
  "a standby counts only looks that succeed: %d s when it was superseded is %p",
  async (s, was) => {
    using archive = makeArchive();
    await using _server = await startServer(archive);
    let passOnce = (_ms: number) => {};
    const standby = await startStandby(archive, {
      wasSuperseded: was,
      storage: {
        ...archive.storage,
        async get(key, maxBytes) {
          if (key.startsWith(prefixes.heartbeats)) passOnce(20_000);
          return archive.storage.get(key, maxBytes);
        },
      },
    });
    passOnce = standby.passOnce;
    standby.pass();
    await standby.ended;
    // Each look counts for one second at most, and the first one for nothing.
    expect(standby.looks()).toBe(s);
  },
);

test("a standby whose disk cannot be written says so, and takes over only when it can", async () => {
  using archive = makeArchive();
  await serve(archive, 2, { commit: "sync" });
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

test("a standby takes over as soon as the log has stood still for long enough, however long its looks take", async () => {
  using archive = makeArchive();
  await using _server = await startServer(archive);
  const lookMs = 120;
  let passOnce = (_ms: number) => {};
  const get: ObjectStorage["get"] = (key, maxBytes) => {
    if (key.startsWith(prefixes.heartbeats)) passOnce(lookMs);
    return archive.storage.get(key, maxBytes);
  };
  const standby = await startStandby(archive, { storage: { ...archive.storage, get } });
  passOnce = standby.passOnce;
  standby.pass();
  await standby.ended;
  expect(standby.takenOverMs()).toBeWithin(10_000, 10_000 + 4 * lookMs);
});

test("a standby takes over in async mode only when the log was closed, or on a promotion", async () => {
  using archive = makeArchive();
  const server = await startServer(archive, { commit: "async" });
  const first = await startStandby(archive);
  first.pass();
  await first.untilLooks(100);
  expect(first.lines).not.toContain("taking over");
  await server[Symbol.asyncDispose]();
  // Nothing is lost.
  expect(await first.ended).toBe(true);
  using other = makeArchive();
  await using _second = await startServer(other, { commit: "async" });
  const promoted = await startStandby(other);
  await promoteTo(other.storage);
  expect(await promoted.ended).toBe(false);
});

test("a standby in async mode waits when a log was sealed at a start, until a promotion", async () => {
  using archive = makeArchive();
  await using _server = await startServer(archive, { commit: "async" });
  const number = (await archive.segments()).length + 1;
  const sealer = { writer: "start", holder: "a", timeMs: 0 };
  await seal(archive.storage, { generation: 1, number }, sealer);
  const standby = await startStandby(archive);
  standby.pass();
  await standby.untilLooks(100);
  expect(standby.lines).not.toContain("taking over");
  await promoteTo(archive.storage);
  expect(await standby.ended).toBe(false);
});

test("a server that was superseded takes over when it is promoted", async () => {
  using archive = makeArchive();
  await using _server = await startServer(archive);
  const standby = await startStandby(archive, { wasSuperseded: true });
  await promoteTo(archive.storage);
  await standby.ended;
  expect(standby.lines).toContain("taking over");
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
  await write(server);
  await server[Symbol.asyncDispose]();
  await beat(archive, 1, number);
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
  const { storage, freeze } = freezable(archive.storage);
  await using server = await startServer(archive, { storage });
  let isCut = false;
  const standby = await startStandby(archive, {
    storage: {
      ...archive.storage,
      get: async (key, maxBytes) =>
        isCut && key.startsWith("log/") ? null : archive.storage.get(key, maxBytes),
    },
  });
  await standby.untilSame(server);
  isCut = true;
  for (let count = 0; count < 3; count += 1) await write(server);
  const lost = await archive.lose((await archive.segments()).at(-2) ?? "");
  freeze();
  // Not known from a heartbeat.
  await beat(archive, 1);
  isCut = false;
  standby.pass();
  await standby.untilLooks(standby.looks() + 60);
  await standby.stop();
  expect(standby.lines).not.toContain("taking over");
  expect(lost).toContain("is missing");
});

test("a copy that is ahead of an archive which was put back begins it anew when it takes over", async () => {
  using archive = makeArchive();
  const server = await startServer(archive);
  const standby = await startStandby(archive);
  const before = (await archive.segments()).length;
  for (let count = 0; count < 3; count += 1) await write(server);
  await standby.untilSame(server);
  const content = contentOf(server.db);
  await server.archiver.committed(0);
  const newer = (await archive.segments()).slice(before);
  await archive.storage.remove(newer);
  await beat(archive, 1);
  standby.pass();
  expect(await standby.ended).toBe(true);
  await server[Symbol.asyncDispose]();
  await using next = await archive.start({ path: archive.at("b.db"), commit: "sync" });
  await archive.untilBases(2);
  expect(contentOf(next.db)).toEqual(content);
  expect(await archive.restore()).toEqual(content);
});

test.each([
  ["", false],
  [" that it has sealed itself", true],
])(
  "a copy that is ahead of a log%s is not continued when another server continues that",
  async (_title, isSealed) => {
    using archive = makeArchive();
    await using server = await startServer(archive);
    const standby = await startStandby(archive);
    const number = (await archive.segments()).length;
    await write(server);
    await standby.untilSame(server);
    const end = (await archive.segments()).length;
    await archive.storage.remove((await archive.segments()).slice(number));
    const sealer = { writer: "other", holder: "other", timeMs: 0 };
    await seal(archive.storage, { generation: 1, number: number + 1 }, sealer);
    if (isSealed) await seal(archive.storage, { generation: 1, number: end + 1 }, sealer);
    const names = { archive: "archive", name: "other", identity: "other", holder: "other" };
    const parent = { generation: 1, number };
    const log = { number: 2, previousEnd: number, parent, commit: "sync" } as const;
    await createRecord(archive.storage, { ...names, ...log });
    standby.pass();
    await expectRejection(standby.ended, "operator", /^another server has continued the archive/);
  },
);

/** As a server has left it that has begun anew, and was killed before its first base, or whose base was deleted. */
async function beginAnew(
  { storage, segments }: Archive,
  number: number,
  hasBase = false,
  commit = "sync",
) {
  const own = { archive: "archive", name: "other", identity: "other", holder: "other", commit };
  const previousEnd = number === 2 ? (await segments()).length : 0;
  const record = { ...own, number, previousEnd, parent: null };
  await storage.put(generationKey(number), encodeJson(record));
  const state = { writer: "other", confirmed: 0, sequence: 1, intervalMs: 5_000, hasBase };
  await storage.put(heartbeatKey(number), encodeJson({ generation: number, ...state }));
}

/** A copy that has all of a log, which its server has closed. */
async function startBehindEnd(create?: ObjectStorage["create"]) {
  const archive = makeArchive();
  await using server = await startServer(archive);
  const storage = { ...archive.storage, ...(create && { create }) };
  const standby = await startStandby(archive, { storage });
  await standby.untilSame(server);
  return { archive, standby, content: contentOf(server.db) };
}

test.each([
  ["whose base was deleted", true, "sync", /^generation 2 has no base any more$/],
  ["that may have acknowledged writes", false, "async", /or `user-api archive promote`/],
])("a standby gives up no generation %s", async (_title, hasBase, commit, reason) => {
  const { archive, standby } = await startBehindEnd();
  using _archive = archive;
  await beginAnew(archive, 2, hasBase, commit);
  standby.pass();
  await standby.untilLooks(200);
  expect(standby.reasons().at(-1)).toMatch(reason);
  if (hasBase) return await standby.stop();
  await promoteTo(archive.storage);
  expect(await standby.ended).toBe(false);
});

test("the age of a copy is known although the log does not end, because many segments are read at the same time", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive);
  const { length } = await archive.segments();
  const bodies = new Map<string, Uint8Array<ArrayBuffer>>();
  let [rounds, reads, most] = [0, 0, 0];
  let passOnce = (_ms: number) => {};
  const get: ObjectStorage["get"] = async (key, maxBytes) => {
    if (key.startsWith(prefixes.heartbeats) && bodies.size > 0) {
      // Each round takes a second.
      passOnce(1_000);
      rounds += 1;
      most = Math.max(most, reads);
      reads = 0;
    }
    const number = parseKey(key)?.number ?? 0;
    if (number <= length) return await archive.storage.get(key, maxBytes);
    if (maxBytes !== 1) reads += 1;
    // The server writes while they are read.
    return number > length + (rounds <= 6 ? 160 : 260) ? null : (bodies.get(key) ?? null);
  };
  const standby = await startStandby(archive, { storage: { ...archive.storage, get } });
  passOnce = standby.passOnce;
  while (standby.ages.length === 0) await Bun.sleep(1);
  for (let count = 0; count < 260; count += 1) await write(server, 1);
  const written = await archive.segments();
  const found = await Promise.all(written.map(archive.body));
  [standby.ages.length, reads] = [0, 0];
  for (const [at, key] of written.entries()) bodies.set(key, found[at] ?? new Uint8Array());
  await standby.untilSame(server);
  await standby.stop();
  expect(most).toBe(192);
  // As of a look ahead.
  expect(standby.ages.some((ageMs) => ageMs > 1_000 && ageMs < 4_000)).toBeTrue();
});
