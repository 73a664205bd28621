/** Makes each system call of a scenario on the database files fail in turn, and compares what is stored afterwards. */
import { Database } from "bun:sqlite";
import { afterAll, beforeAll, expect } from "bun:test";
import { copyFileSync, existsSync } from "node:fs";
import type { Order } from "../../src/domain/order.ts";
import type { User } from "../../src/domain/user.ts";
import { parsed } from "../contract/open.ts";
import { newEmail } from "../http/make.ts";
import { startServer, type TestResponse } from "../http/server.ts";
import type { TemporaryDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { withStore } from "../support/open-store.ts";
import type { Fault } from "./strace.ts";

/** Concurrent runs: each mostly waits for the program. */
const LANES = 4;
/** Of the later calls only some fail, with gaps that are this part of their ordinal. On CI, the first four all do. */
const GAP = isLong ? 1 / 4 : 2;
/** A longer error includes the next calls, so it need not begin at each of them. */
const LONGER_GAP = isLong ? 2 : 4;
/** More calls than any scenario makes. If a call can still fail at this point, the run is endless. */
const MAX_CALLS = 2_000;

export interface Kind {
  readonly calls: string;
  readonly error: string;
  /** Suffixes of the database file's name; `null` for all files. */
  readonly files: readonly string[] | null;
}

const files = ["", "-wal", "-shm"];
export const read: Kind = { calls: "pread64,read", error: "EIO", files };
/** Of a disk that was removed. SQLite takes it for damage, too. */
export const readNoDisk: Kind = { ...read, error: "ENXIO" };
export const write: Kind = { calls: "pwrite64,write", error: "EIO", files };
export const writeToFullDisk: Kind = { ...write, error: "ENOSPC" };
export const sync: Kind = { calls: "fsync,fdatasync", error: "EIO", files };
export const truncate: Kind = { calls: "ftruncate", error: "EIO", files };
export const open: Kind = { calls: "openat", error: "EIO", files: [...files, "-serving"] };
export const map: Kind = { calls: "mmap", error: "ENOMEM", files: ["-shm"] };
export const writing = [read, write, writeToFullDisk, sync];

export interface Outcome {
  /** The calls that failed; empty if the run made fewer calls. */
  readonly injected: readonly string[];
  readonly problems: readonly string[];
}

type Attempt = (kind: Kind, when: string) => Promise<Outcome>;

type Duration = "once" | "always";

/** @returns the ordinal of the call that fails first in the run after this one */
function nextCall(call: number, duration: Duration): number {
  const gap = Math.ceil(call * GAP);
  return call + (duration === "once" ? gap : LONGER_GAP * gap);
}

/** A full disk stays full for a while, but a disk can fail briefly. */
function durationsOf({ error }: Kind): readonly Duration[] {
  return error === "ENOSPC" ? ["always"] : ["once", "always"];
}

/** Runs `attempt` with a fault in each call of each kind, and expects no problem in any run. */
export async function failEachCall(
  scenario: string,
  kinds: readonly Kind[],
  attempt: Attempt,
): Promise<void> {
  const problems: string[] = [];
  let hasFailed = false;
  const sameCalls = Object.groupBy(kinds, ({ calls, files }) => `${calls} of ${files}`);
  const jobs = Object.values(sameCalls).filter((group) => group !== undefined);

  /** @param end ordinal of a call that no run reaches. @returns the same, from these runs if they are the first */
  async function fail(kind: Kind, duration: Duration, end: number): Promise<number> {
    for (let call = 1; call < end; call = nextCall(call, duration)) {
      const when = duration === "once" ? `${call}` : `${call}+`;
      const outcome = await attempt(kind, when);
      const fault = `${scenario}: ${kind.calls} #${when} ${kind.error}`;
      const [first = "no call failed"] = outcome.injected;
      problems.push(...outcome.problems.map((problem) => `${fault} (${first}): ${problem}`));
      if (outcome.injected.length === 0) return call;
      hasFailed = true;
    }
    return end;
  }

  /** The calls before the first one that fails are the same, whichever error it returns and for how long. */
  async function run(group: readonly Kind[]): Promise<void> {
    let end = MAX_CALLS;
    for (const kind of group)
      for (const duration of durationsOf(kind)) end = await fail(kind, duration, end);
    if (end === MAX_CALLS) {
      problems.push(`${scenario}: ${group[0]?.calls}: more than ${MAX_CALLS} calls`);
    }
  }

  async function work(): Promise<void> {
    for (let job = jobs.shift(); job !== undefined; job = jobs.shift()) await run(job);
  }
  await Promise.all(Array.from({ length: LANES }, work));

  expect(problems).toEqual([]);
  // Otherwise a scenario without any such call would pass.
  expect(hasFailed).toBe(true);
}

/** The database that each run starts with; its files are copied. */
export type Base = Awaited<ReturnType<typeof makeBase>>;

/** @param withLog whether the last writes are left in the write-ahead log, as after a crash */
async function makeBase(users: number, withLog: boolean) {
  const server = await startServer();
  const note = "n".repeat(430);
  const metadata = { a: note, b: note };
  const fields = Array.from({ length: users }, () => ({ email: newEmail(), name: null, metadata }));
  await withStore(server.database, ({ bulk }) => bulk.users.import(fields));
  await server.stop();
  if (withLog) {
    await server.restart();
    for (let id = 1; id <= users; id += Math.ceil(users / 8)) {
      await server.call("PATCH", `/users/${id}`, { body: { name: "In the log" } });
    }
    await server.stop("SIGKILL");
  }
  return {
    path: server.database,
    tokens: { writeToken: server.writeToken, readToken: server.readToken },
    users,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** Makes a base for the tests of a block. @param withLog as in `makeBase` @returns it, once they run */
export function useBase(users: number, withLog: boolean): () => Base {
  let base: Base;
  beforeAll(async () => {
    base = await makeBase(users, withLog);
  });
  afterAll(() => base[Symbol.asyncDispose]());
  return () => base;
}

export function copyBase(base: Base, directory: TemporaryDirectory): string {
  const path = directory.at("test.db");
  // Not the shared memory: the first process that opens the database creates it.
  for (const suffix of ["", "-wal"]) {
    if (existsSync(base.path + suffix)) copyFileSync(base.path + suffix, path + suffix);
  }
  return path;
}

export function faultOf({ calls, error, files }: Kind, when: string, database: string): Fault {
  return { calls, error, when, paths: (files ?? []).map((suffix) => database + suffix) };
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 300) : String(error);
}

/** What must be stored after a crash. */
export type Acknowledged = ReturnType<typeof nothingAcknowledged>;

export function nothingAcknowledged(users: number) {
  // Creates that failed after their transaction was written, e.g. because its sync failed, are in doubt: after a crash
  // they may be stored, like any write that was not acknowledged.
  return { records: new Map<string, unknown>(), users, inDoubt: 0 };
}

export function acknowledgeUser(acknowledged: Acknowledged, user: { readonly id: number }): void {
  acknowledged.records.set(`/users/${user.id}`, user);
  acknowledged.users += 1;
}

/**
 * Opens the database without a fault, and compares. In this process, because starting the binary would take half of the
 * time of these tests.
 * @returns the differences
 */
export async function findLost(
  database: string,
  { records, users, inDoubt }: Acknowledged,
): Promise<string[]> {
  const problems: string[] = [];
  try {
    await withStore(database, async (store) => {
      const { total } = await store.users.list({ limit: 1, offset: 0 });
      if (total < users || total > users + inDoubt) {
        problems.push(`${total} users after a crash, not ${users}`);
      }
      for (const [path, record] of records) {
        const [, resource, id] = path.split("/");
        const { get } = resource === "users" ? store.users : store.orders;
        const found = parsed<User | Order>(await get(Number(id)));
        if (!Bun.deepEquals(found, record)) {
          problems.push(`${path}: ${JSON.stringify(found)} after a crash`);
        }
      }
      // While the store is open: it must have recovered the file, not this check.
      if (!isIntact(database)) problems.push("the database is damaged after a crash");
    });
  } catch (error) {
    problems.push(`cannot be compared after a crash: ${messageOf(error)}`);
  }
  return problems;
}

/** A temporary fault must be a 503, so that the client retries. */
export function isUnavailable({ status, headers }: TestResponse): boolean {
  return status === 503 && headers.has("retry-after");
}

/** Notes a user that was created, or what is wrong with the response. @returns whether it was created */
export function noteCreated(
  response: TestResponse,
  acknowledged: Acknowledged,
  problems: string[],
): boolean {
  const { status, text, json } = response;
  if (status === 201) acknowledgeUser(acknowledged, json.data);
  else if (!isUnavailable(response)) problems.push(`${status} ${text.slice(0, 200)}`);
  return status === 201;
}

export function isIntact(path: string): boolean {
  using db = new Database(path, { readonly: true });
  const checked = db.query("pragma integrity_check").all();
  return Bun.deepEquals(checked, [{ integrity_check: "ok" }]);
}
