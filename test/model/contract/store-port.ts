/** A store in this process, with the clock of the history. */
import { dlopen } from "bun:ffi";
import { statSync } from "node:fs";
import { AppError } from "../../../src/base/error.ts";
import { fingerprint } from "../../../src/domain/idempotency.ts";
import type { Store, StoreOptions } from "../../../src/domain/store.ts";
import { boundsOf, type SumsQuery } from "../../../src/domain/sums.ts";
import { ifMatch } from "../../support/preconditions.ts";
import type { Call, Outcome, Row, Write } from "./reference.ts";
import { AUTHOR, editOf, fieldsOf } from "./reference.ts";
import type { OpenPort, Port } from "./steps.ts";

function write(store: Store, call: Write) {
  const { method, table, id, body } = call;
  const records: any = store[table];
  const request = { owner: "owner", fingerprint: fingerprint(method, `${table}/${id}`, body) };
  const key = call.key === null ? null : { ...request, key: call.key };
  const preconditions = call.ifMatch === null ? null : ifMatch(call.ifMatch);
  if (method === "POST") return records.create(fieldsOf(call), key, AUTHOR);
  if (method === "DELETE") return records.remove(id, preconditions, key, AUTHOR);
  return records.update(id, editOf(call), preconditions, key, AUTHOR);
}

async function run(store: Store, call: Call): Promise<Outcome> {
  if (call.kind === "import") {
    const { lines, update, dryRun } = call;
    const results = await store.bulk[call.table].import(lines as never, { update, dryRun });
    return { results: results.map(({ outcome }) => outcome) };
  }
  const records: any = store[call.table];
  if (call.kind === "list") {
    const { nextAfter, maxOffset: _, ...page } = await records.list(call.query);
    return { ...page, ...(call.table !== "changes" && { nextAfter }) };
  }
  if (call.kind === "sum")
    return { json: await store.sumOrders(boundsOf(call.query as SumsQuery)) };
  if (call.kind === "history") {
    const { table, query } = call;
    const page = await store.changes.listOf({ offset: 0, ...query, table } as never);
    const isFound = page.total > 0 || (await records.get(query.id)) !== null;
    return isFound ? page : { code: "not_found" };
  }
  const record = await (call.kind === "write" ? write(store, call) : records.get(call.query.id));
  if (record === null) return { code: "not_found" };
  const { json, replayed = false } = record;
  return call.kind === "get" ? { json } : { json, replayed };
}

export async function sendTo(store: Store, call: Call): Promise<Outcome> {
  try {
    return await run(store, call);
  } catch (error) {
    if (error instanceof AppError) return { code: error.code };
    throw error;
  }
}

/** All rows of a database, as the API shows them. */
export async function inspect(store: Store): ReturnType<Port["inspect"]> {
  const problems = await store.check();
  return store.withCopySource(async (source) => {
    const rowsOf = async (table: "users" | "orders") => {
      const rows: Row[] = (await Array.fromAsync(source.read(table))).flat();
      return rows.map(({ email_key: _, metadata, ...row }) => {
        const items = table === "orders" && { items: JSON.parse(row.items) };
        return { ...row, metadata: JSON.parse(metadata), ...items };
      });
    };
    const keys = (await Array.fromAsync(source.read("idempotency_keys"))).flat();
    return { problems, users: await rowsOf("users"), orders: await rowsOf("orders"), keys };
  });
}

export const isLinux: boolean = process.platform === "linux";
const prlimit = { args: ["i32", "i32", "ptr", "ptr"], returns: "i32" } as const;
const libc = isLinux ? dlopen("libc.so.6", { prlimit }).symbols : null;
// Constants of Linux.
const [RLIMIT_FSIZE, RLIM_INFINITY] = [1, 2n ** 64n - 1n];

/** From now on, a process can write so many bytes behind the end of a file, and no further. `null` ends that. */
export function limitFiles(pid: number, path: string, bytes: number | null): void {
  const limit = bytes === null ? RLIM_INFINITY : BigInt(statSync(path).size + bytes);
  libc?.prlimit(pid, RLIMIT_FSIZE, BigUint64Array.of(limit, RLIM_INFINITY), null);
}

interface TestDatabase {
  /** Where SQLite appends what it writes; `null` for another database. */
  readonly wal: string | null;
  /** @param isFirst whether it is new */
  open(options: Pick<StoreOptions, "now">, isFirst: boolean): Promise<Store>;
  remove(): void | Promise<void>;
}

export function storePort(
  makeDatabase: () => TestDatabase | Promise<TestDatabase>,
  hasMoments: boolean,
): OpenPort {
  return async (clock) => {
    const { open, remove, wal } = await makeDatabase();
    const now = () => new Date(clock.nowMs);
    let store = await open({ now }, true);
    return {
      hasClock: true,
      hasMoments,
      send: (call) => sendTo(store, call),
      async restart() {
        await store.close();
        store = await open({ now }, false);
      },
      ...(wal !== null && { fill: (bytes) => limitFiles(process.pid, wal, bytes) }),
      async expire(before) {
        while (await store.deleteExpiredKeys(before));
        while (await store.changes.deleteExpired(before));
      },
      inspect: () => inspect(store),
      async close() {
        await store.close();
        await remove();
      },
    };
  };
}
