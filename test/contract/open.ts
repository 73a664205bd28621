import { expect } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import type { Order, OrderEdit, OrderFields } from "../../src/domain/order.ts";
import { patchOrder } from "../../src/domain/order.ts";
import type { RecordText } from "../../src/domain/record.ts";
import type { RecordStore } from "../../src/domain/record-store.ts";
import type { Store, StoreOptions } from "../../src/domain/store.ts";
import type { User, UserFields } from "../../src/domain/user.ts";

type Versioned = Pick<User, "id" | "version">;

export type Open = (options?: Partial<Pick<StoreOptions, "now">>) => Promise<Store>;

/** Query of a list for all records of a test. */
export const all = { limit: 1000, offset: 0 };

export const time = "2026-11-20T18:57:03.120Z";

/** A store that is closed when the test ends, and its clock, which only the test moves. */
export async function openWithClock(open: Open) {
  const clock = { time: new Date(time) };
  const store = await open({ now: () => clock.time });
  return {
    store,
    clock,
    pass(milliseconds: number) {
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

/** What both stores have in common. */
export type EitherStore = RecordStore<User | Order, typeof all, never, UserFields | OrderFields>;

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
  ...[
    "'; drop table users; --",
    '"\\"\\u0000{}[]',
    "e\u0301 é ß İ ﬁ",
    "😀👩‍👩‍👧",
    " lead and trail ",
  ],
  ...["\u0001\u001f\u007f\uffff", "line\r\nline", "%_?$1:a@b", "null", "1e3"],
];
