// Every operation returns a record as the same text, whether a program or the database has rendered it.
import { expect, test } from "bun:test";
import {
  all,
  type Open,
  oddTexts,
  openWithClock,
  orderFields,
  setPaid,
  time,
  userFields,
} from "./open.ts";

const texts = [...oddTexts, "\u2028\u2029", "\b\f\t\v\u000e\u0080", "</script>\\/", "$1 %s %%"];
const times = { created_at: time, updated_at: time };
const filler = "é".repeat(500);

export function recordTextContract(open: Open): void {
  test("users returns the same JSON from each operation", async () => {
    await using it = await openWithClock(open);
    const { users } = it.store;
    const expected: string[] = [];
    for (const [at, name] of [null, ...texts].entries()) {
      const metadata: Record<string, string> =
        name === null ? {} : { [name]: name, "2": "b", "1": "a", filler };
      const reference = name === null ? null : `${at}${name}${at}`;
      const fields = userFields({ email: `${at}${name}@b.cd`, reference, name, metadata });
      const key = { owner: "a", key: `user ${at}`, fingerprint: "f" };
      const record = await users.create(fields, key);
      const { id } = record;
      const { email } = fields;
      const jsonOf = (shown: string, version: number) =>
        JSON.stringify({ id, email: shown, reference, name, metadata, version, ...times });
      expect<string>(record.json).toBe(jsonOf(email, 1));
      const replay = await users.create(fields, key);
      expect(replay).toEqual({ ...record, replayed: true });
      expect(await users.get(id)).toEqual(record);
      expect((await users.list({ ...all, limit: 1, after: id - 1 })).records).toBe(record.json);
      expect((await users.list({ ...all, email })).records).toBe(record.json);
      const moved = `new.${email}`;
      const changed = await users.update(id, () => ({ ...fields, email: moved }), null);
      expect<string | undefined>(changed?.json).toBe(jsonOf(moved, 2));
      expected.push(jsonOf(moved, 2));
    }
    const { records } = await users.list(all);
    expect(records).toBe(expected.join(","));
    const removed = await users.remove(1, null);
    expect<string | undefined>(removed?.json).toBe(expected[0]);
  });

  test("orders returns the same JSON from each operation", async () => {
    await using it = await openWithClock(open);
    const { orders, users } = it.store;
    const user = await users.create(userFields(), null);
    const userId = user.id;
    const expected: string[] = [];
    for (const [at, text] of texts.entries()) {
      const items = [{ sku: text, name: text, quantity: 1, unit_price: 2 ** 53 - 1 }];
      const total = 2 ** 53 - 1;
      const metadata: Record<string, string> =
        at === 0 ? {} : { [text]: text, "2": "b", "1": "a", filler };
      const reference = `${at}${text}${at}`;
      const fields = orderFields(userId, { reference, items, total, metadata });
      const key = { owner: "a", key: `order ${at}`, fingerprint: "f" };
      const record = await orders.create(fields, key);
      const { id } = record;
      const jsonOf = (status: string, version: number) =>
        JSON.stringify({
          ...{ id, user_id: userId, currency: "EUR", reference, items, total, refunded: 0 },
          ...{ status, metadata, version, ...times },
        });
      expect<string>(record.json).toBe(jsonOf("pending", 1));
      const replay = await orders.create(fields, key);
      expect(replay).toEqual({ ...record, replayed: true });
      expect(await orders.get(id)).toEqual(record);
      const page = { ...all, limit: 1, after: id - 1 };
      for (const filter of [{}, { user_id: userId }, { status: "pending" as const }]) {
        expect((await orders.list({ ...page, ...filter })).records).toBe(record.json);
      }
      const changed = await orders.update(id, setPaid, null);
      expect<string | undefined>(changed?.json).toBe(jsonOf("paid", 2));
      expected.push(jsonOf("paid", 2));
    }
    for (const filter of [{}, { user_id: userId }, { status: "paid" as const }]) {
      const { records } = await orders.list({ ...all, ...filter });
      expect(records).toBe(expected.join(","));
    }
  });
}
