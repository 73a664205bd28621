/** Makes each system call of a scenario on the database files fail in turn, and compares what is stored afterwards. */
import { Database } from "bun:sqlite";
import { expect } from "bun:test";
import type { Order } from "../../src/domain/order.ts";
import type { User } from "../../src/domain/user.ts";
import { parsed } from "../contract/open.ts";
import { newEmail } from "../http/make.ts";
import type { TestResponse } from "../http/server.ts";
import { isLong } from "../support/long.ts";
import { withStore } from "../support/open-store.ts";
import type { Fault } from "./strace.ts";

/** Concurrent runs: each mostly waits for the program. */
const LANES = 2;
/** Of the later calls only some fail, with gaps that are this part of their ordinal. On CI, the calls 1, 3, 9 and so on. */
const GAP = isLong ? 2 : 12;
/** A longer error includes the next calls, so it need not begin at each of them. */
const LONGER_GAP = isLong ? 4 : 24;

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

/**
 * Runs `attempt` with a fault in each call of each kind, until a run makes fewer calls, and expects no problem in any run.
 */
export async function failEachCall(
  scenario: string,
  kinds: readonly Kind[],
  attempt: (kind: Kind, when: string) => Promise<Outcome>,
  lanes = LANES,
): Promise<void> {
  const problems: string[] = [];
  let failed = 0;

  async function fail(kind: Kind, when: string): Promise<boolean> {
    const { injected, problems: found } = await attempt(kind, when);
    const [first = "no call failed"] = injected;
    const fault = `${scenario}: ${kind.calls} #${when} ${kind.error} (${first})`;
    problems.push(...found.map((problem) => `${fault}: ${problem}`));
    failed += injected.length;
    return injected.length > 0;
  }

  async function failEach(kind: Kind): Promise<void> {
    let end = Number.POSITIVE_INFINITY;
    const [once, always] = [["", GAP] as const, ["+", LONGER_GAP] as const];
    // A full disk stays full for a while, but a disk can fail briefly: a short run has no other errors of it.
    const failures = isLong ? [once, always] : [once];
    for (const [suffix, gap] of kind.error === "ENOSPC" ? [always] : failures)
      for (let call = 1; call < end; call += Math.ceil(call * gap))
        if (!(await fail(kind, call + suffix))) end = call;
  }

  const rest = kinds.values();
  const work = async () => {
    for (const kind of rest) await failEach(kind);
  };
  await Promise.all(Array.from({ length: lanes }, work));
  expect(problems).toEqual([]);
  // Otherwise a scenario without any such call would pass.
  expect(failed).toBeGreaterThan(0);
}

/** Imports users of 1 kB. */
export function importUsers(database: string, count: number) {
  const note = "n".repeat(430);
  const metadata = { a: note, b: note };
  const fields = Array.from({ length: count }, () => ({ email: newEmail(), name: null, metadata }));
  return withStore(database, ({ bulk }) => bulk.users.import(fields));
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
export async function findLost(database: string, { records, users, inDoubt }: Acknowledged) {
  const problems: string[] = [];
  try {
    await withStore(database, async (store) => {
      const { total } = await store.users.list({ limit: 1, offset: 0 });
      if (total < users || total > users + inDoubt)
        problems.push(`${total} users after a crash, not ${users}`);
      for (const [path, record] of records) {
        const [, resource, id] = path.split("/");
        const { get } = resource === "users" ? store.users : store.orders;
        const found = parsed<User | Order>(await get(Number(id)));
        if (!Bun.deepEquals(found, record))
          problems.push(`${path}: ${JSON.stringify(found)} after a crash`);
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
