import { expect } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import {
  type Order,
  type OrderEdit,
  type OrderFields,
  patchOrder,
} from "../../src/domain/order.ts";
import type { RecordText } from "../../src/domain/record.ts";
import type { RecordStore } from "../../src/domain/record-store.ts";
import type { Store } from "../../src/domain/store.ts";
import type { User, UserFields } from "../../src/domain/user.ts";

interface Versioned {
  readonly id: number;
  readonly version: number;
}

interface OpenOptions {
  readonly now?: () => Date;
  readonly monotonicMs?: () => number;
}

export type Open = (options?: OpenOptions) => Promise<Store>;

/** Query of a list for all records of a test. */
export const all = { limit: 1000, offset: 0 };

export const time = "2026-11-20T18:57:03.120Z";

/** A store that is closed when the test ends, and its clock, which only the test moves. */
export async function openWithClock(open: Open) {
  const clock = { time: new Date(time) };
  let monotonicMs = 0;
  const store = await open({ now: () => clock.time, monotonicMs: () => monotonicMs });
  return {
    store,
    clock,
    pass(milliseconds: number) {
      monotonicMs += milliseconds;
      clock.time = new Date(clock.time.getTime() + milliseconds);
    },
    [Symbol.asyncDispose]: () => store.close(),
  };
}

export function userFields(fields: Partial<UserFields> = {}): UserFields {
  const email = `${crypto.randomUUID()}@example.com`;
  return { email, reference: null, name: null, metadata: {}, ...fields };
}

/** @returns the record as the API shows it, after comparing it with what the store says about its text */
export function parsed<Row extends Versioned>(record: RecordText<Row>): Row;
export function parsed<Row extends Versioned>(record: RecordText<Row> | null): Row | null;
export function parsed<Row extends Versioned>(record: RecordText<Row> | null): Row | null {
  if (record === null) return null;
  const row: Row = JSON.parse(record.json);
  expect(record).toEqual({ id: row.id, version: row.version, json: record.json });
  return row;
}

export async function newUser(store: Store, fields: Partial<UserFields> = {}): Promise<User> {
  return parsed(await store.users.create(userFields(fields), null));
}

export function orderFields(userId: number, fields: Partial<OrderFields> = {}): OrderFields {
  const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];
  return {
    ...{ user_id: userId, currency: "EUR", reference: null, items, total: 100, refunded: 0 },
    ...{ status: "pending", metadata: {} },
    ...fields,
  };
}

/** @returns an edit that sets these fields of an order, from any status to any other */
export function setFields(fields: Partial<OrderEdit>): (order: Order) => OrderEdit {
  return (order) => ({ ...patchOrder(order, {}), ...fields });
}

/** An edit that changes a user each time. */
export const rename = ({ email, reference, metadata, version }: User): UserFields => ({
  ...{ email, reference, metadata },
  name: `v${version + 1}`,
});

export const setPaid = setFields({ status: "paid" });

/** Changes a record while the clock goes back and forth. Its `updated_at` must not go back. */
export async function expectAscendingTimes<Row extends Versioned, Change>(
  { pass }: Pick<Awaited<ReturnType<typeof openWithClock>>, "pass">,
  { get, update }: Pick<RecordStore<Row, never, Change, never>, "get" | "update">,
  id: number,
  edit: (record: Row) => Change,
): Promise<void> {
  const later = "2026-11-20T18:58:03.120Z";
  const steps = [
    [-60_000, time],
    [120_000, later],
    [-30_000, later],
  ] as const;
  for (const [at, [passedMs, updatedAt]] of steps.entries()) {
    pass(passedMs);
    const expected = { version: at + 2, created_at: time, updated_at: updatedAt };
    expect(parsed(await update(id, edit, null))).toMatchObject(expected);
    expect(parsed(await get(id))).toMatchObject(expected);
  }
}

/** @returns the code of each error; `new` or `replayed` for each record */
export async function outcomesOf(
  creates: readonly Promise<{ readonly replayed?: true }>[],
): Promise<string[]> {
  const results = await Promise.allSettled(creates);
  return results.map((result) => {
    if (result.status === "fulfilled") return result.value.replayed ? "replayed" : "new";
    return result.reason instanceof AppError ? result.reason.code : String(result.reason);
  });
}

/** Text that is easily corrupted: quotes, SQL, JSON, combining and astral characters. */
export const oddTexts = [
  "'; drop table users; --",
  '"\\"\\u0000{}[]',
  "e\u0301 é ß İ ﬁ",
  "😀👩‍👩‍👧",
  "\u0001\u001f\u007f\uffff",
  " lead and trail ",
  "line\r\nline",
  "%_?$1:a@b",
  "null",
  "1e3",
];
