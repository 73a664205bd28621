// A standby: its copy follows the log of another server, and it takes over only when that one can store nothing more.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { closeSync, existsSync, openSync, readdirSync, rmSync } from "node:fs";
import { AppError } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { follow } from "../../../src/sqlite/archive/follow.ts";
import { type Base, decodeJson, encodeJson } from "../../../src/sqlite/archive/format.ts";
import { baseKey, heartbeatKey, prefixes, slotKey } from "../../../src/sqlite/archive/keys.ts";
import { createRecord, seal } from "../../../src/sqlite/archive/log.ts";
import { promote } from "../../../src/sqlite/archive/promote.ts";
import { prepareCopy } from "../../../src/sqlite/archive/standby.ts";
import { expectRejection } from "../../support/expect-error.ts";
import { type Archive, contentOf, makeArchive, type Server, serve } from "./archived.ts";

interface StandbyOptions {
  readonly storage?: ObjectStorage;
  /** Called before each look at the log but the first. */
  readonly onSleep?: (looks: number) => unknown;
  readonly wasSuperseded?: boolean;
}

/** Restores a copy, or continues with the one that is there, and follows. No time passes before `pass`. */
async function startStandby(archive: Archive, options: StandbyOptions = {}) {
  const { storage = archive.storage, onSleep = () => {}, wasSuperseded = false } = options;
  const path = archive.at("b.db");
  const stopping = new AbortController();
  const lines: string[] = [];
  let nowMs = 0;
  let isPassing = false;
  let looks = 0;
  const clock = {
    monotonicMs: () => nowMs,
    async sleep(ms: number) {
      looks += 1;
      if (isPassing) nowMs += ms;
      await onSleep(looks);
      await Bun.sleep(1);
    },
  };
  let takenOverMs = 0;
  const log = (_level: string, event: string) => {
    lines.push(event);
    if (event === "taking over") takenOverMs = nowMs;
  };
  const common = { path, holder: "b.db", clock, nowMs: Date.now, signal: stopping.signal, log };
  const start = await prepareCopy({ ...common, storage, restore: "never", verify() {} });
  if (start === null) throw new Error("no other server was found");
  const db = new Database(path, { readwrite: true, strict: true });
  db.run("pragma busy_timeout = 5000");
  db.prepare("select 1 from t").get();
  const open = (suffix: string) => openSync(path + suffix, "r+");
  const files = { database: open(""), wal: open("-wal"), index: open("-shm") };
  const ages: number[] = [];
  const onFresh = (ageMs: number) => void ages.push(ageMs);
  const settings = { takeoverMs: 10_000, wasSuperseded };
  const following = follow({ ...common, onFresh, ...settings, files, start, storage });
  const ended = following.finally(() => {
    db.close(true);
    for (const descriptor of Object.values(files)) closeSync(descriptor);
  });
  ended.catch(() => {});
  return {
    lines,
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
    /** Resolves with the result of `follow` when this server may write. */
    ended,
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

test("a standby takes over with the segments that are stored before its seal when the log stands still", async () => {
  using archive = makeArchive();
  const { storage, freeze, thaw } = freezable(archive.storage);
  await using server = await startServer(archive, { storage });
  let writes = 0;
  const standby = await startStandby(archive, {
    storage: {
      ...archive.storage,
      // The other server is slow, and not dead: these are in front of the seal.
      async create(key, body) {
        if (writes < 12) {
          writes += 1;
          await write(server, 1);
        } else freeze();
        return archive.storage.create(key, body);
      },
    },
  });
  await standby.untilSame(server);
  // It keeps the WAL from being emptied.
  using reader = new Database(archive.at("b.db"), { readwrite: true });
  reader.run("begin");
  reader.prepare("select count(*) from t").get();
  standby.pass();
  expect(await standby.ended).toBe(true);
  expect(writes).toBe(12);
  expect(standby.content()).toEqual(contentOf(server.db));
  server.insert();
  thaw();
  while (!server.isSuperseded()) await Bun.sleep(1);
  expect(await archive.restore()).toEqual(standby.content());
  await using next = await archive.start({ path: archive.at("b.db"), commit: "sync" });
  expect(next.lines.join("\n")).toContain('"continued":true');
  await write(next);
  await archive.expectComplete(next);
});

test("a standby does not take over while the other server shows that it is running", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive);
  const standby = await startStandby(archive, {
    onSleep: (looks) => (looks % 19 === 0 ? beat(archive, looks) : null),
  });
  standby.pass();
  await standby.untilLooks(200);
  expect(standby.ages.length).toBeGreaterThan(5);
  await write(server);
  await standby.untilSame(server);
  await standby.stop();
  expect(standby.lines).toEqual(["archive restored", "following"]);
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
  await using _second = await archive.start();
  const promoted = await startStandby(archive);
  await promote(archive.storage, true, Date.now());
  expect(await promoted.ended).toBe(false);
});

test("a server that was superseded takes over when it is promoted", async () => {
  using archive = makeArchive();
  await using _server = await startServer(archive);
  const standby = await startStandby(archive, { wasSuperseded: true });
  await promote(archive.storage, true, Date.now());
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
  expect(standby.lines).toEqual(["archive restored", "following", "archive not followed"]);
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

test("a standby keeps its copy when a segment is damaged, and is restored again from a later base", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive);
  const damaged = { generation: 1, number: (await archive.segments()).length + 1 };
  const standby = await startStandby(archive, {
    storage: {
      ...archive.storage,
      async get(key, maxBytes) {
        const body = await archive.storage.get(key, maxBytes);
        return key === slotKey(damaged) ? (body?.slice(0, -1) ?? null) : body;
      },
    },
  });
  await write(server);
  standby.pass();
  await standby.untilLooks(300);
  expect(standby.lines).toEqual(["archive restored", "following", "archive not followed"]);
  const [key = ""] = await archive.keys(prefixes.bases);
  const base = decodeJson<Base>(key, await archive.body(key));
  const later = {
    ...base,
    number: base.number + 1,
    first: { ...damaged, number: damaged.number + 1 },
  };
  await archive.storage.put(baseKey(later), encodeJson({ ...later, last: damaged }));
  await expectRejection(standby.ended, "unavailable", /does not match its checksum$/);
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
    const sealer = { writer: "other", holder: "other" };
    await seal(archive.storage, { generation: 1, number: number + 1 }, sealer, 0);
    if (isSealed) await seal(archive.storage, { generation: 1, number: end + 1 }, sealer, 0);
    const names = { archive: "archive", name: "other", identity: "other", holder: "other" };
    const log = { number: 2, previousEnd: number, continues: true, commit: "sync" } as const;
    await createRecord(archive.storage, { ...names, ...log });
    standby.pass();
    await expectRejection(standby.ended, "operator", /^another server has continued the archive/);
  },
);

test("a standby follows the next generation, and is restored again if that begins anew", async () => {
  using archive = makeArchive();
  await serve(archive, 2, { commit: "sync" });
  const standby = await startStandby(archive);
  {
    await using server = await archive.start({ commit: "sync" });
    await write(server);
    await standby.untilSame(server);
  }
  {
    // Parts of the WAL are lost.
    using db = new Database(archive.path);
    db.run("insert into t (content) values ('x')");
    db.run("pragma wal_checkpoint(truncate)");
  }
  await using server = await startServer(archive);
  await expectRejection(standby.ended, "unavailable", "another server has begun anew");
  const again = await startStandby(archive);
  await again.untilSame(server);
  await again.stop();
  expect(again.lines[0]).toBe("archive restored");
});
