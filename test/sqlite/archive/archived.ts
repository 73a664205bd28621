/** A database with an archive, as the thread of a server has it. */

import { Database } from "bun:sqlite";
import { expect } from "bun:test";
import { closeSync, openSync } from "node:fs";
import { fail } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { type ArchiverOptions, createWriteState } from "../../../src/sqlite/archive/context.ts";
import { promote } from "../../../src/sqlite/archive/follow/promote.ts";
import * as format from "../../../src/sqlite/archive/format.ts";
import { baseKey, chunkKey, parseKey, prefixes } from "../../../src/sqlite/archive/keys.ts";
import type { DatabaseFiles, Machine, OpenDatabase } from "../../../src/sqlite/archive/machine.ts";
import { readHead } from "../../../src/sqlite/archive/read/catalog.ts";
import { markerOfRestored } from "../../../src/sqlite/archive/read/rebuild.ts";
import { createArchiver } from "../../../src/sqlite/archive/write/archiver.ts";
import { diskFiles } from "../../../src/sqlite/disk/files.ts";
import { writeMarker } from "../../../src/sqlite/disk/marker.ts";
import { restoreToFile } from "../../../src/sqlite/disk/restored-file.ts";
import { systemMachine } from "../../../src/sqlite/disk/system-machine.ts";
import { fileState } from "../../../src/sqlite/file/files.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";
import { makeDirectory } from "../../support/directory.ts";
import { expectRejection } from "../../support/expect-error.ts";

export const defaults = {
  restore: "never",
  // Short, so that tests do not wait.
  intervalMs: 10,
  keepMs: 1e9,
  commit: "async",
  standby: false,
  takeoverMs: 10_000,
  wasSuperseded: false,
} as const;
/** A divisor of the intervals of heartbeats. */
const STEP_MS = 250;

export function openDatabase(path: string) {
  const db = new Database(path, { create: true, strict: true });
  db.run("pragma journal_mode = wal");
  db.run("pragma synchronous = off");
  db.run("pragma wal_autocheckpoint = 0");
  db.run("create table if not exists t (n integer primary key, content blob)");
  return db;
}

/** @returns the number of rows, and a value that depends on all of them */
export function contentOf(db: Database): unknown {
  const rows = db.prepare("select n, hex(content) as content from t order by n").all();
  return { rows: rows.length, hash: Bun.hash(JSON.stringify(rows)) };
}

/**
 * A clock that only the test moves, and waiting for another server.
 * @param onSleep called after each such wait
 * @param takesTime whether such a wait does
 */
export function makeClock(onSleep: () => unknown = () => {}, takesTime = () => true) {
  let nowMs = 0;
  let sleeps = 0;
  const timers = new Map<() => void, { readonly ms: number; nextMs: number }>();

  function pass(ms: number): void {
    nowMs += ms;
    for (const [work, timer] of [...timers]) {
      if (nowMs < timer.nextMs) continue;
      timer.nextMs = nowMs + timer.ms;
      work();
    }
  }

  return {
    ...systemMachine,
    monotonicMs: () => nowMs,
    sleeps: () => sleeps,
    pass,
    /** In steps, between which everything that may continue does so. */
    async passSlowly(ms: number) {
      for (const endMs = nowMs + ms; nowMs < endMs; await Bun.sleep(0)) pass(STEP_MS);
    },
    every(ms: number, work: () => void): Disposable {
      // What sends segments.
      if (ms < STEP_MS) return systemMachine.every(ms, work);
      timers.set(work, { ms, nextMs: nowMs + ms });
      return { [Symbol.dispose]: () => void timers.delete(work) };
    },
    async sleep(ms: number, signal?: AbortSignal) {
      // Without a signal, this server waits for itself.
      if (signal === undefined) return await Bun.sleep(0);
      sleeps += 1;
      if (takesTime()) pass(ms);
      await onSleep();
    },
  };
}

export type Server = Awaited<ReturnType<typeof startArchived>>;

export type Archive = ReturnType<typeof makeArchive>;

/** An archive in memory, and databases in a directory. */
export function makeArchive() {
  const directory = makeDirectory();
  const storage = createMemoryStorage();
  const path = directory.at("a.db");

  /** @returns the content of the restored database. Expects these warnings */
  async function restore(at: Date | null = null, expected: readonly string[] = []) {
    const target = directory.at(`${crypto.randomUUID()}.db`);
    const { warnings } = await restoreToFile(target, storage, at);
    expect(warnings).toEqual(expected);
    using db = new Database(target);
    expect(db.prepare("pragma integrity_check").get()).toEqual({ integrity_check: "ok" });
    return contentOf(db);
  }

  /** Opens the database of the archive, or another one, and starts to archive it. */
  const start = (options: Partial<Options> = {}) => startArchived({ path, storage, ...options });

  return {
    path,
    at: directory.at,
    storage,
    keys: (prefix: string) => keysOf(storage, prefix),
    /** @returns the keys of segments, in the order of their generations and numbers */
    async segments(): Promise<string[]> {
      const keys = await keysOf(storage, prefixes.log);
      const slots = keys.map((key) => parseKey(key) ?? fail("operator", key));
      const heads = await Promise.all(slots.map((slot) => readHead(storage, slot)));
      // One that is damaged was a segment.
      return keys.filter((_, at) => (heads[at]?.kind ?? "segment") === "segment");
    },
    body: (key: string) => bodyOf(storage, key),
    /** Deletes the contents of an object. @returns what is damaged */
    async clear(key: string): Promise<string> {
      await storage.put(key, new Uint8Array());
      return `${key} cannot be read`;
    },
    /** Deletes a segment. @returns what is missing */
    async lose(key: string): Promise<string> {
      await storage.remove([key]);
      const slot = parseKey(key);
      return `segment ${slot?.number} of generation ${slot?.generation} is missing`;
    },
    /** Changes the last bit of an object with a checksum. @returns what is damaged */
    async changeBit(key: string): Promise<string> {
      const body = await bodyOf(storage, key);
      body[body.length - 1] = (body.at(-1) ?? 0) ^ 1;
      await storage.put(key, body);
      return `${key} does not match its checksum`;
    },
    /** Changes what a slot says, and its hash. */
    async changeHead(key: string, more: object): Promise<void> {
      const body = await bodyOf(storage, key);
      const length = body.indexOf(10, body.indexOf(10) + 1) + 1;
      const head = format.decodeJson<object>(key, body.subarray(0, length));
      const changed = [format.encodeJson({ ...head, ...more }), body.subarray(length)];
      await storage.put(key, new Uint8Array(Buffer.concat(changed)));
    },
    async untilBases(count: number): Promise<void> {
      while ((await keysOf(storage, prefixes.bases)).length < count) await Bun.sleep(1);
    },
    restore,
    /** @returns the path of a restored database, with which a server may continue the archive */
    async restoreOther(time: Date | null, from = storage) {
      const other = directory.at("b.db");
      const restored = await restoreToFile(other, from, time);
      writeMarker(other, markerOfRestored(restored, true, fileState(other)));
      return other;
    },
    promote: () =>
      promote(storage, true, Date.now(), { writer: crypto.randomUUID(), holder: "operator" }),
    start,
    async serve(segments: number, options: Partial<Options> = {}) {
      await using server = await start(options);
      await server.write(segments);
    },
    async expectComplete({ content, untilComplete }: Server): Promise<void> {
      await untilComplete();
      expect(await restore()).toEqual(content());
    },
    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
}

/** The record of a server that has begun a generation of an archive. */
export function recordOf(number: number, more: Partial<format.Generation> = {}): format.Generation {
  const server = { archive: "archive", name: `${number}`, identity: "", holder: "" };
  return { number, previousEnd: 0, parent: null, ...server, commit: "async", ...more };
}

/** The files of a database, whose server has the name of its path. */
export function filesOf(path: string, more: Partial<DatabaseFiles> = {}): DatabaseFiles {
  return { ...diskFiles(path, () => {}), holder: path, ...more };
}

interface Options
  extends Pick<
    ArchiverOptions,
    "storage" | "intervalMs" | "keepMs" | "maxWalBytes" | "commit" | "standby" | "writes"
  > {
  readonly path: string;
  readonly nowMs: () => number;
  /** By default, no clock is set. */
  readonly clock: Machine;
  readonly change: (database: OpenDatabase) => OpenDatabase;
  /** Of the process; by default, all processes with this database have the same, and need not wait for each other. */
  readonly identity: string;
}

async function startArchived({
  path,
  nowMs = Date.now,
  clock = { ...systemMachine, monotonicMs: nowMs },
  change = (database) => database,
  identity = path,
  ...settings
}: Pick<Options, "path" | "storage"> & Partial<Options>) {
  const db = openDatabase(path);
  const files = filesOf(path, { lockIdentity: () => identity });
  const open = (suffix: string) => openSync(path + suffix, "r");
  const descriptors = { database: open(""), wal: open("-wal"), index: open("-shm") };
  const inserting = db.prepare("insert into t (content) values (randomblob(?))");
  const lines: string[] = [];
  let confirmed = 0;
  let isSuperseded = false;
  let state = { secondsBehind: 0, bytesBehind: 0, heldForMs: 0 };
  const archiver = createArchiver({
    ...defaults,
    maxWalBytes: 2 ** 30,
    writes: createWriteState(),
    ...settings,
    files,
    database: change(files.open(descriptors)),
    machine: { ...clock, nowMs },
    signal: new AbortController().signal,
    log: (_level, event, fields = {}) => lines.push(`${event} ${JSON.stringify(fields)}`),
    onConfirmed(ticket) {
      confirmed = ticket;
    },
    onState(current) {
      state = current;
    },
    onSuperseded() {
      isSuperseded = true;
    },
  });
  let closing: Promise<void> | null = null;
  async function closeAll(): Promise<void> {
    await archiver.close();
    db.close(true);
    for (const descriptor of Object.values(descriptors)) closeSync(descriptor);
  }
  const close = () => (closing ??= closeAll());
  try {
    await archiver.start(null);
  } catch (error) {
    await close();
    throw error;
  }
  let commits = 0;
  function insert(count = 1, bytes = 1000): void {
    for (let at = 0; at < count; at += 1) inserting.run(bytes);
  }
  async function untilComplete(): Promise<void> {
    commits += 1;
    archiver.committed(commits);
    while (confirmed < commits) await Bun.sleep(1);
  }
  return {
    db,
    archiver,
    lines,
    state: () => state,
    isSuperseded: () => isSuperseded,
    insert,
    untilComplete,
    content: () => contentOf(db),
    async write(segments: number) {
      for (let at = 0; at < segments; at += 1) {
        insert(3);
        await untilComplete();
      }
    },
    /** Waits until a line begins like this, of which there were so many before. */
    async untilLine(start: string, before = 0) {
      while (lines.filter((line) => line.startsWith(start)).length <= before) await Bun.sleep(1);
    },
    /** Waits until all that a tick does has begun. */
    async untilTick() {
      for (let ticks = 0; ticks < 2; ticks += 1)
        for (const before = state; state === before; ) await Bun.sleep(1);
    },
    [Symbol.asyncDispose]: close,
  };
}

export async function keysOf(storage: ObjectStorage, prefix: string): Promise<string[]> {
  return (await storage.list(prefix)).map(({ key }) => key);
}

async function bodyOf(storage: ObjectStorage, key: string): Promise<Uint8Array<ArrayBuffer>> {
  // A copy: `slice` of a Buffer is none.
  return new Uint8Array((await storage.get(key)) ?? []);
}

/** Adds a base without its chunks. @returns the warning about it */
export async function addDamagedBase(storage: ObjectStorage): Promise<string> {
  const [key = ""] = (await keysOf(storage, prefixes.bases)).slice(-1);
  const base = format.decodeJson<format.Base>(key, await bodyOf(storage, key));
  const damaged = { ...base, number: base.number + 1 };
  await storage.put(baseKey(damaged), format.encodeJson(damaged));
  const damage = `${chunkKey(damaged, 0)} is missing`;
  return `${baseKey(damaged)} is damaged, an older base was used, and nothing is lost: ${damage}`;
}

/** @param problem what is damaged or missing. @returns the time that the message of a failed restore names */
export async function adviceOf(restore: Promise<unknown>, problem: unknown): Promise<Date> {
  const { message } = await expectRejection(restore, "operator", /--at/);
  const [, what, time = ""] =
    /^the archive is damaged: (.+): restore a state before it with --at (\S+)$/.exec(message) ?? [];
  expect<unknown>(what).toEqual(problem);
  return new Date(time);
}
