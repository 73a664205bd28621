import { expect, test } from "bun:test";
import { newOrder, orderJson, parseStoredOrder } from "../../src/domain/order.ts";
import { parseRecordText, recordText } from "../../src/domain/record.ts";
import { newUser, parseStoredUser, userJson } from "../../src/domain/user.ts";
import { oddTexts } from "../contract/open.ts";

const time = "2026-11-20T18:57:03.120Z";

for (const text of [...oddTexts, "\u2028\u2029", "</script>", "", null]) {
  test(`userJson and orderJson return what JSON.stringify returns when a text is ${JSON.stringify(text)}`, () => {
    const metadata = JSON.stringify(text === null ? {} : { [text]: text, b: "1", a: "2" });
    const user = newUser(7, { email: `${text}@b.cd`, name: text, metadata }, time);
    expect<string>(userJson(user)).toBe(JSON.stringify(parseStoredUser(user)));
    const items = JSON.stringify([{ sku: `${text}`, quantity: 1, unit_price: 2 ** 53 - 1 }]);
    const fields = { user_id: 7, currency: "EUR", items, total: 2 ** 53 - 1, metadata };
    const order = newOrder(2 ** 53 - 1, fields, time);
    expect<string>(orderJson(order)).toBe(JSON.stringify(parseStoredOrder(order)));
  });
}

test("parseRecordText returns the same record when it was stored as text", () => {
  const fields = { email: "a@b.cd", name: null, metadata: '{"__proto__":"x"}' };
  const record = recordText({ ...newUser(7, fields, time), version: 3 }, userJson);
  expect(record).toMatchObject({ id: 7, version: 3 });
  expect(parseRecordText(record.json)).toEqual(record);
});
