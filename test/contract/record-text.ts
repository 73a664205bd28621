// Every operation returns a record as the same text, whether a program or the database has rendered it.
import { expect, test } from "bun:test";
import type { EitherStore, Open } from "./open.ts";
import { all, newUser, oddTexts, openWithClock, orderFields, time, userFields } from "./open.ts";

const texts = [...oddTexts, "\u2028\u2029", "\b\f\t\v\u000e\u0080", "</script>\\/", "$1 %s %%"];
const times = { created_at: time, updated_at: time };
const filler = "é".repeat(500);
const total = 2 ** 53 - 1;

export function recordTextContract(open: Open): void {
  test.each(["users", "orders"] as const)(
    "%s returns the same JSON from each operation",
    async (table) => {
      await using it = await openWithClock(open);
      const { create, get, list, update }: EitherStore = it.store[table];
      if (table === "orders") await newUser(it.store);
      const expected: string[] = [];
      for (const [at, text] of [null, ...texts].entries()) {
        const metadata: Record<string, string> =
          text === null ? {} : { [text]: text, "2": "b", "1": "a", filler };
        const reference = text === null ? null : `${at}${text}${at}`;
        const email = `${at}${text}@b.cd`;
        const items = [{ sku: text ?? "a", name: text ?? "b", quantity: 1, unit_price: total }];
        const fields =
          table === "users"
            ? userFields({ email, reference, name: text, metadata })
            : orderFields(1, { reference, items, total, metadata });
        const key = { owner: "a", key: `${at}`, fingerprint: "f" };
        const record = await create(fields, key);
        const { id } = record;
        const jsonOf = (version: number, changed = {}) =>
          JSON.stringify({ id, ...fields, ...changed, version, ...times });
        expect<string>(record.json).toBe(jsonOf(1));
        expect(await create(fields, key)).toEqual({ ...record, replayed: true });
        expect(await get(id)).toEqual(record);
        const page = { ...all, limit: 1, after: id - 1 };
        const filters = table === "users" ? [{ email }] : [{ user_id: 1 }, { status: ["pending"] }];
        for (const filter of [{}, ...filters])
          expect((await list({ ...page, ...filter })).records).toBe(record.json);
        const change = table === "users" ? { email: `new.${email}` } : { status: "paid" };
        const edit = (before: object) => ({ ...before, ...change });
        const changed = await update(id, edit as never, null);
        expect<string | undefined>(changed?.json).toBe(jsonOf(2, change));
        expected.push(jsonOf(2, change));
      }
      for (const filter of table === "users" ? [{}] : [{}, { user_id: 1 }, { status: ["paid"] }])
        expect((await list({ ...all, ...filter })).records).toBe(expected.join(","));
      const removed = table === "users" ? await it.store.users.remove(1, null) : null;
      if (removed !== null) expect<string>(removed.json).toBe(expected[0] ?? "");
    },
  );
}
