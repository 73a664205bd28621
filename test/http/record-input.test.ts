// What the fields of a record may be, for each route that writes one. Bodies as such are in bodies.test.ts.
import { expect, test } from "bun:test";
import {
  expectError,
  expectText,
  type Fields,
  metadataOf,
  newEmail,
  newRecord,
  newUser,
  orderText,
  send,
  stored,
} from "./make.ts";
import { startSharedServer } from "./server.ts";

const server = await startSharedServer();
const buyer = await newUser(server);

const emoji = "😀"; // One code point, two UTF-16 units, four bytes.
const secret = "hunter2-secret";
const line = { sku: "A-1", quantity: 2, unit_price: 250 };
const largest = Number.MAX_SAFE_INTEGER;

/** A problem, or its beginning, and fields that have it. */
type Row = readonly [problem: string, ...fields: Fields[]];

const of = (field: string, ...values: unknown[]): Fields[] =>
  values.map((value) => ({ [field]: value }));
const entries = (...all: [key: string, value: unknown][]): Fields[] =>
  all.map(([key, value]) => ({ metadata: { [key]: value } }));
const readOnly = (...fields: string[]): Row[] =>
  fields.map((field) => [`${field} is read-only`, { [field]: 1 }, { [field]: secret }]);
const unstorable = [`${secret}\u0000`, `${secret}\ud83d`, `\ude00${secret}`];
const textRule = "must be text without U+0000 and lone surrogates";
const referenceRule =
  "reference must be text of 1 to 255 characters (no control characters, no white space at its ends) or null";
const keyRule = "must have a name of 1 to 40 characters";

const ofAll: Row[] = [
  [
    referenceRule,
    ...of("reference", "", "r".repeat(256), emoji.repeat(256), " a", "a ", "\u00a0a", "a\u2003"),
    ...of("reference", "\ufeffa", "a\n", "a\tb", "a\u0001b", "a\u007fb", "a\u0085b", 5, true, {}),
  ],
  [`reference ${textRule}`, ...of("reference", ...unstorable)],
  ["metadata must be an object", ...of("metadata", secret, 98765, true, [secret], metadataOf(51))],
  [`metadata."" ${keyRule}`, ...entries(["", secret])],
  ...["k".repeat(41), emoji.repeat(41)].map(
    (key): Row => [`metadata.${key} ${keyRule}`, ...entries([key, secret])],
  ),
  ["metadata.k\0 must have a name without", ...entries(["k\0", secret])],
  ["metadata.k\ufffd must have a name without", ...entries(["k\ud800", secret])],
  [
    "metadata.k must be text of at most 500 characters",
    ...entries(["k", emoji.repeat(501)], ["k", 98765], ["k", true], ["k", [secret]]),
  ],
  [`metadata.k ${textRule}`, ...unstorable.flatMap((value) => entries(["k", value]))],
  ["metadata.__proto__ must be text", ...entries(["__proto__", { a: secret }])],
  ["nmae is not allowed", { nmae: secret }],
  ["Email is not allowed", { Email: null }],
  ...readOnly("id", "version", "created_at", "updated_at"),
];
/** Not of a patch, in which `null` clears. */
const ofComplete: Row[] = [
  ["metadata must be an object", { metadata: null }],
  ["metadata.k must be text", ...entries(["k", null])],
];

/** 255 code points, with labels of at most 60. */
const longEmail = `${secret.padEnd(59, "z")}@${`${"d".repeat(47)}.`.repeat(4)}com`;
const ofUser: Row[] = [
  [
    "email must be an email address of at most 254 characters",
    // More are in schema.test.ts.
    ...of("email", "", secret, `${secret}@host`, `${secret}@xn--zz.example`, longEmail),
    ...of("email", null, 12345, true, [], [secret], {}),
  ],
  ...["0020", "200B"].map((code): Row => {
    const character = String.fromCharCode(Number.parseInt(code, 16));
    const rule = `must not have white space or invisible characters, such as U+${code}`;
    const emails = [`${character}${secret}@b.example`, `a@${secret}.example${character}`];
    return [`email ${rule}`, ...of("email", ...emails)];
  }),
  [
    `email ${textRule}`,
    ...unstorable.flatMap((part) => of("email", `${part}@b.example`, `a@${part}.example`)),
  ],
  [
    "name must be text of 1 to 200 characters or null",
    ...of("name", "", emoji.repeat(201), 98765, false, [secret], { a: secret }),
  ],
  [`name ${textRule}`, ...of("name", ...unstorable)],
];

const amountRule = "must be a whole number in minor units: 500 for 5.00";
const priceRule = `must be an integer from -${largest} to ${largest}`;
const quantityRule = "items[0].quantity must be an integer from 1 to 1000000";
const userRule = `user_id must be an integer from 1 to ${largest}`;
const asType = (rule: string) => rule.replace("an integer", "a whole number");

const item = (fields: Fields) => ({ items: [line, { ...line, ...fields }] });
const ofNewOrder: Row[] = [
  ["items is required", { items: undefined }],
  [
    "items must be an array of 1 to 500 items",
    ...of("items", null, { 0: line }, [], Array(501).fill(line)),
  ],
  ["items[1] must be a JSON object", ...of("items", [line, null], [line, [line]], [line, secret])],
  ["items[1].colour is not allowed", item({ colour: secret })],
  ["items[1].__proto__ is not allowed", item({ ["__proto__"]: {} })],
  ...["sku", "quantity", "unit_price"].map(
    (field): Row => [`items[1].${field} is required`, item({ [field]: undefined })],
  ),
  [
    "items[1].sku must be text of 1 to 64 characters",
    ...of("sku", "", "s".repeat(65), emoji.repeat(65), 5).map(item),
  ],
  [`items[1].sku ${textRule}`, item({ sku: `${secret}\0` })],
  [
    "items[1].name must be text of 1 to 200 characters",
    ...of("name", "", "n".repeat(201), null).map(item),
  ],
  ["currency is required", { currency: undefined }],
  [
    "currency must be an ISO 4217 code in upper case",
    ...of("currency", "eur", "EURO", "EU", "ZZZ", "DDM", "", " EUR", "EUR\n", "€", 978, null, {}),
  ],
  ["user_id is required", { user_id: undefined }],
  [userRule, { user_id: 0 }],
  ...readOnly("total", "refunded", "status"),
];
const ofOrderChange: Row[] = [
  ...readOnly("currency", "items", "total"),
  [
    "status must be one of pending, paid, shipped, delivered, canceled",
    ...of("status", null, "PAID", "cancelled", "", 1),
  ],
  [asType(userRule), ...of("user_id", null, "1", 1.5)],
  ["user_id must be an existing user", { user_id: 999_999 }],
  [`refunded must be an integer from 0 to ${largest}`, { refunded: -1 }],
  [`refunded ${amountRule}`, ...of("refunded", null, "1", 0.5)],
];

const required: Row = ["email is required", { email: undefined }];
const placed = { user_id: buyer.id, currency: "EUR", items: [line] };
for (const [method, path, bodyOf, rows] of [
  ["POST", "/users", () => ({ email: newEmail() }), [...ofComplete, ...ofUser, required]],
  ["PUT", "/users", () => ({ email: newEmail() }), [...ofComplete, ...ofUser, required]],
  ["PATCH", "/users", () => ({}), ofUser],
  ["POST", "/orders", () => placed, [...ofComplete, ...ofNewOrder]],
  ["PATCH", "/orders", () => ({ status: "paid", metadata: { kept: "out" } }), ofOrderChange],
] as const)
  test.each([...ofAll, ...rows])(`${method} ${path} stores nothing when %s`, async (...row) => {
    const [problem, ...fields] = row;
    const { id } = await newRecord(server, path, buyer.id, { metadata: { a: "1" } });
    const target = method === "POST" ? path : `${path}/${id}`;
    const state = () => stored(server, `${path}?limit=1`, `${path}/${id}`);
    const before = await state();
    const error = new RegExp(`^${RegExp.escape(`Validation failed: ${problem}`)}`);
    for (const some of fields) {
      const body = { ...bodyOf(), ...some };
      expectError(await server.call(method, target, { body }), 400, error, secret);
    }
    expect(await state()).toEqual(before);
  });

/** Items as text, so that their numbers are not converted to doubles, and the problem. */
test.each<[problem: string, ...items: string[][]]>([
  [quantityRule, ...["0", "-0", "-1", "1000001", `${largest}`].map((one) => [`${one} × 0`])],
  [
    `items must add up to at most ${largest}`,
    ...[["2 × 4503599627370496"], [`1 × ${largest}`, "1 × 1"], ["3 × 3002399751580331"]],
    Array(100).fill(`1000000 × ${largest}`),
  ],
  [
    "items must add up to at least 0",
    ...[["1 × -1"], ["2 × 3", "7 × -1"], [`1000000 × -${largest}`]],
  ],
])("POST /orders stores nothing when %s", async (problem, ...all) => {
  const before = await stored(server, "/orders?limit=1");
  for (const items of all) {
    const response = await send(server, "POST", "/orders", orderText(buyer.id, ...items));
    expectError(response, 400, `Validation failed: ${problem}`);
  }
  expect(await stored(server, "/orders?limit=1")).toEqual(before);
});

// JSON.parse would round some of them to an integer that is allowed: more are in json.test.ts.
const tooLarge = ["9007199254740992", "-9223372036854775808"];
const noIntegers = "5.00 1e3 1e400 1.5 true null [1]".split(" ");
noIntegers.push('"5"', "9".repeat(400), `${largest}.4`);
test.each([...tooLarge, ...noIntegers])(
  "an integer is rejected, not rounded, when written %s",
  async (literal) => {
    const code = tooLarge.includes(literal) ? "range" : "type";
    for (const [text, range, type] of [
      [
        orderText(buyer.id, `1 × ${literal}`),
        `items[0].unit_price ${priceRule}`,
        `items[0].unit_price ${amountRule}`,
      ],
      [orderText(buyer.id, `${literal} × 1`), quantityRule, asType(quantityRule)],
      [orderText(literal, "1 × 1"), userRule, asType(userRule)],
    ] as const) {
      const response = await send(server, "POST", "/orders", text);
      expectError(response, 400, `Validation failed: ${code === "range" ? range : type}`);
      expect(response.json.meta.problems[0].code).toBe(code);
    }
  },
);

const badIds =
  "abc 1.5 1.0 0x1 1e0 %201 1%20 1%0A %00 %zz 1_0 1,0 1n １ + - +-1 NaN null sum Sums".split(" ");
badIds.push("9223372036854775808", "-9223372036854775809", "9".repeat(400));
test.each(badIds)("the id of an order returns 400 in plain text when it is %s", async (id) => {
  expectText(await server.call("GET", `/orders/${id}`), 400, "invalid order id");
  const patched = await server.call("PATCH", `/orders/${id}`, { body: { status: "paid" } });
  expectText(patched, 400, "invalid order id");
});
