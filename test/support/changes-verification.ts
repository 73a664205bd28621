/** What clients of the model know, and what follows from it about changes and lists. @see changes-model.ts */
import { expect } from "bun:test";
import type { Change } from "../../src/domain/change.ts";
import { orderStatuses } from "../../src/domain/order.ts";

const MAX_LIMIT = 1000;
/** So many lists of orders by user and by reference are verified. */
const MAX_VALUES = 100;

/** Lists that have a total of their own. */
const lists: readonly string[] = [
  "/users?",
  "/orders?",
  ...orderStatuses.map((status) => `/orders?status=${status}&`),
];

/** What clients know. Changes are `user 1 v2`, `user 1 v2 deleted` for a deletion, and `order 1 v2 paid`. */
export interface Known {
  /** The records of responses, by change. */
  readonly acknowledged: Map<string, Row>;
  /** Number of writes without a definite response, by record, or by table for new records. */
  readonly inDoubt: Map<string, number>;
  /** Number of imported users, at least and at most. */
  readonly imported: [number, number];
  /** Responses, and errors in the logs, that nothing excuses. */
  readonly wrong: string[];
}

export interface Client {
  readonly url: () => string;
  readonly token: string;
  readonly isOver: () => boolean;
  readonly known: Known;
}

export type Row = Record<string, any>;

export interface Reader {
  readonly changes: Change[];
  readonly feed: string;
}

export function nameOf(kind: string, id: number, version: number, state: string | null): string {
  return `${kind} ${id} v${version}${state === null ? "" : ` ${state}`}`;
}

function nameOfChange({ type, record_id, version, status }: Change): string {
  const state = type === "user.deleted" ? "deleted" : status;
  return nameOf(type.split(".")[0] ?? "", record_id, version, state);
}

function nameOfRow({ id, version, status = null }: Row): string {
  return nameOf(status === null ? "user" : "order", id, version, status);
}

export function count(counts: Map<string, number>, name: string): number {
  const next = (counts.get(name) ?? 0) + 1;
  counts.set(name, next);
  return next;
}

export async function list({ url, token }: Client, path: string): Promise<Row | null> {
  const headers = { authorization: `Bearer ${token}` };
  try {
    const response = await fetch(`${url()}/api/v1${path}`, { headers });
    return response.status === 503 ? null : ((await response.json()) as Row);
  } catch {
    return null;
  }
}

/** Reads the ends of lists all the time: their totals are the number of rows. */
export async function readLists(client: Client): Promise<void> {
  const totals = new Map<string, number>();
  for (let at = 0; !client.isOver(); at += 1) {
    const path = lists[at % lists.length] ?? "";
    const offset = Math.max(0, (totals.get(path) ?? 0) - MAX_LIMIT / 2);
    const page = await list(client, `${path}limit=${MAX_LIMIT}&offset=${offset}`);
    if (page !== null) {
      const { data, meta } = page as { data: Row[]; meta: Row };
      totals.set(path, meta["total"]);
      if (data.length > 0 && data.length < MAX_LIMIT)
        expect([path, meta["total"]]).toEqual([path, offset + data.length]);
    }
    await Bun.sleep(20);
  }
}

/**
 * Expects each record of a list as it was acknowledged, and as many as the total of each page.
 * @returns all of them
 */
async function readAll(client: Client, path: string): Promise<Row[]> {
  const rows: Row[] = [];
  /** What a client has sent once, though perhaps again with the same key. */
  const sent = new Set<string>();
  for (let after = 0; ; ) {
    const page = await list(client, `${path}limit=${MAX_LIMIT}&after=${after}`);
    if (page === null) await Bun.sleep(50);
    else {
      const { data, meta } = page as { data: Row[]; meta: Row };
      for (const row of data) {
        expect(row).toEqual(client.known.acknowledged.get(nameOfRow(row)) ?? row);
        rows.push(row);
        sent.add(row["email"] ?? row["items"][0].sku);
      }
      after = data.at(-1)?.["id"] ?? 0;
      if (data.length < MAX_LIMIT) {
        expect([path, rows.length]).toEqual([path, meta["total"]]);
        expect([path, sent.size]).toEqual([path, rows.length]);
        return rows;
      }
    }
  }
}

/** Lists have the records that follow from the changes, and exact totals. */
export async function verifyLists(client: Client, changes: readonly Change[]): Promise<void> {
  const last = new Map<string, Change>();
  for (const change of changes)
    last.set(`${change.type.split(".")[0]} ${change.record_id}`, change);
  const records = [...last.values()].filter(({ type }) => type !== "user.deleted");
  for (const path of lists) {
    const status = /status=(\w+)/.exec(path)?.[1];
    const wanted = records.filter(({ type, status: of }) =>
      path.startsWith("/users")
        ? type.startsWith("user")
        : type.startsWith("order") && (status === undefined || of === status),
    );
    const names = (await readAll(client, path)).map(nameOfRow).sort();
    expect([path, Bun.deepEquals(names, wanted.map(nameOfChange).sort())]).toEqual([path, true]);
  }
  const orders = await readAll(client, "/orders?");
  for (const field of ["user_id", "reference"]) {
    const newest = [...Map.groupBy(orders, (order) => order[field])].slice(-MAX_VALUES);
    for (const [value, found] of newest.filter(([each]) => each !== null))
      expect(await readAll(client, `/orders?${field}=${value}&`)).toEqual(found);
  }
}

/** Changes are those that were acknowledged, and at most as many others as there are writes in doubt. */
function verifyCompleteness(changes: readonly Change[], known: Known): void {
  const seen = new Set(changes.map(nameOfChange));
  expect(seen.size).toBe(changes.length);
  expect([...known.acknowledged.keys()].filter((name) => !seen.has(name))).toEqual([]);
  const unexplained = new Map<string, number>();
  let imported = 0;
  for (const change of changes) {
    const { type, record_id, token } = change;
    if (token === null) imported += 1;
    else if (!known.acknowledged.has(nameOfChange(change))) {
      const [kind = "", what] = type.split(".");
      count(unexplained, what === "created" ? kind : `${kind} ${record_id}`);
    }
  }
  const tooMany = [...unexplained].filter(
    ([name, changed]) => changed > (known.inDoubt.get(name) ?? 0),
  );
  expect(tooMany).toEqual([]);
  expect(imported).toBeGreaterThanOrEqual(known.imported[0]);
  expect(imported).toBeLessThanOrEqual(known.imported[1]);
}

export function verify(readers: readonly Reader[], last: number, known: Known): readonly Change[] {
  // Readers may have received more: a killed process may have left a statement to the server.
  const [{ changes, feed }, ...others] = readers.map((reader) => ({
    ...reader,
    changes: reader.changes.slice(0, last),
  })) as [Reader, ...Reader[]];
  for (const other of others) {
    expect(other.feed).toBe(feed);
    expect(Bun.deepEquals(other.changes, changes)).toBe(true);
  }
  verifyCompleteness(changes, known);
  return changes;
}
