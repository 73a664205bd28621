import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { runHere } from "../../support/run-here.ts";
import { makeHarness, makeHarnessWithDatabase } from "../harness.ts";
import {
  type Fields,
  failure,
  moveIn,
  ndjson,
  recordsOf,
  rulesFile,
  wooLine,
  wooOrder,
} from "./shops.ts";

const fixture = `${import.meta.dir}/../../fixtures/woocommerce-orders.ndjson`;

async function moved(orders: readonly Fields[], rules: Fields = {}) {
  using world = makeHarness();
  const args = ["--rules", rulesFile(world, rules)];
  const outcome = await moveIn(world, "woocommerce", { "orders.ndjson": ndjson(orders) }, ...args);
  return { ...outcome, ...(await recordsOf(world)) };
}

test("move-in brings the orders of the REST API, with items that add up to their totals", async () => {
  using world = makeHarness();
  const { code, stdout, stderr } = await world.run("move-in", "woocommerce", fixture);
  expect([code, stderr]).toEqual([0, expect.stringContaining("Moved in 2 orders (0 updated")]);
  expect(stdout).toMatch(/^EUR +paid +1 +1 +29\.35 +29\.35 +0\.00 +0\.00$/m);
  expect(stdout).toMatch(/^EUR +delivered +1 +1 +20\.01 +20\.01 +5\.00 +5\.00$/m);
  const { users, orders } = await recordsOf(world);
  expect(users).toMatchObject([
    { email: "john.doe@example.com", reference: "26", name: "John Doe" },
  ]);
  expect(orders).toMatchObject([
    { reference: "2025-727", status: "paid", total: 2935, created_at: "2025-03-22T19:28:02.000Z" },
    { refunded: 500 },
  ]);
  const itemsOf = ({ items }: (typeof orders)[number]) =>
    items.map(({ sku, name, quantity, unit_price }) => [sku, name, quantity, unit_price]);
  expect(orders.map(itemsOf)).toEqual([
    [
      ["tea-01", "2 × Green tea & “more”", 1, 1335],
      ["product-93", "3 × Green tea", 1, 500],
      ["shipping", "Flat Rate", 1, 1000],
      ["fee", "Gift wrap", 1, 100],
    ],
    // Its total is a cent more than its lines.
    [["tea-01", "2 × Green tea", 1, 2001]],
  ]);
  const { metadata } = orders[0] ?? {};
  const own = { shop_id: "727", shop_status: "processing", customer_note: "Ring twice" };
  expect(metadata).toMatchObject({ ...own, billing_city: "San Francisco" });
  expect(metadata).not.toHaveProperty("shipping_company");
});

const cheap = { total: "5.00", line_items: [wooLine(), wooLine(), wooLine()] };
const fee = { name: "Gift card", total: "-24.50", total_tax: "-0.50" };
const giftCard = { ...cheap, fee_lines: [fee] };
const completed = { status: "refunded", date_completed_gmt: "2026-01-02T10:00:00" };
const line = (fields: Fields) => ({ line_items: [wooLine(fields)] });
const one = (item: Fields) => ({ items: [item] });
const lost = { refunded: 1000, metadata: { shop_refund_above_total: "2.50" } };
const cups = "☕".repeat(300);

test.each([
  ["a discount as a fee", giftCard, { items: [{}, {}, {}, { sku: "fee", unit_price: -2500 }] }],
  ["a discount in its total", cheap, { items: [{}, {}, {}, { sku: "other", unit_price: -2500 }] }],
  ["a part of an item", line({ quantity: 0.5 }), one({ name: "0.5 × Tea" })],
  ["no lines", { line_items: [] }, one({ sku: "other", unit_price: 1000 })],
  ["a refund above the total", { refunds: [{ total: "-12.50" }] }, lost],
  ["a refund after it was completed", completed, { status: "delivered" }],
  ["a refund before", { status: "refunded" }, { status: "canceled" }],
  ["toman", { currency: "IRT", total: "150000" }, { currency: "IRR", total: 150_000_000 }],
  ["a currency without decimals", { currency: "JPY", total: "240.00" }, { total: 240 }],
  ["a currency with three", { currency: "KWD", total: "1.005" }, { total: 1005 }],
  ["more decimals", { total: "1.005" }, { total: 101 }],
  [
    "entities",
    line({ name: "&#8211;&amp;amp;&uuml;&x;&constructor;" }),
    one({ name: "–&amp;ü&x;&constructor;" }),
  ],
  ["a name that is too long", line({ name: cups }), one({ name: cups.slice(100) })],
  ["no name and no SKU", line({ name: "NULL", sku: null }), one({ name: "product-9" })],
] as const)(
  "move-in brings an order with %s, without a difference",
  async (_, fields, expected) => {
    const { code, orders } = await moved([wooOrder(1, fields)]);
    expect([code, orders]).toMatchObject([0, [expected as Fields]]);
  },
);

test("move-in makes a user of each account, email, phone number and of each order without any", async () => {
  const account = (customerId: number, email: string) => ({ customer_id: customerId, email });
  const { code, users, owners } = await moved([
    wooOrder(1, account(55, "old@a.example")),
    wooOrder(2, account(55, "family@a.example")),
    wooOrder(3, account(56, "Family@a.example")),
    wooOrder(4, { email: " family@a.example", last_name: "Ray" }),
    wooOrder(5, { email: "guest@a.example" }),
    wooOrder(6, { email: "GUEST@a.example", phone: "030 1234567" }),
    wooOrder(7, { email: "", phone: "+49 30 1234567" }),
    wooOrder(8, { email: "", phone: "0049 30/1234567" }),
    wooOrder(9, { email: "", phone: "0000000000" }),
    wooOrder(10, { email: "no email", phone: "000 000 0000" }),
    wooOrder(11, account(57, "")),
    wooOrder(12, { email: "", phone: "4.93012345E+11" }),
  ]);
  expect(code).toBe(0);
  const phone = "phone-49301234567";
  const placeholders = { 1: "customer-55", 2: "customer-55", 7: phone, 8: phone, 9: "guest-9" };
  const all = Object.entries({
    ...placeholders,
    10: "guest-10",
    11: "customer-57",
    12: "guest-12",
  });
  const known = { 3: "Family@a.example", 4: "Family@a.example", 5: "GUEST@a.example" };
  expect(owners).toEqual({
    ...Object.fromEntries(all.map(([number, name]) => [number, `${name}@no-email.invalid`])),
    ...{ ...known, 6: "GUEST@a.example" },
  });
  expect(users.map(({ name }) => name)).not.toContain("Ann Ray");
  expect(users.flatMap(({ reference }) => reference ?? []).sort()).toEqual(["55", "56", "57"]);
});

test("move-in brings neither orders nor users of drafts and trash", async () => {
  const drafts = ["checkout-draft", "auto-draft", "trash"].map((status, at) =>
    wooOrder(2 + at, { status }),
  );
  const { code, users, orders, stderr } = await moved([wooOrder(1), ...drafts]);
  expect([code, users.length, orders.length]).toEqual([0, 1, 1]);
  expect(stderr).toContain("3 ignored");
});

test("move-in takes no placeholder, and no email that is too long, for the email of a person", async () => {
  const typed = ["", "guest-1@no-email.invalid", `${"a".repeat(250)}@b.example`];
  const { code, owners } = await moved(typed.map((email, at) => wooOrder(1 + at, { email })));
  const guests = [1, 2, 3].map((id) => [`${id}`, `guest-${id}@no-email.invalid`]);
  expect([code, owners]).toEqual([0, Object.fromEntries(guests)]);
});

test("move-in counts an order that several files have once, and takes the newest", async () => {
  using world = makeHarness();
  const version = (status: string, hour: string) =>
    ndjson([wooOrder(1, { status, date_modified_gmt: `2026-02-01T${hour}:00:00` })]);
  const [a, b, c] = [version("pending", "10"), version("completed", "12"), version("failed", "11")];
  const { code } = await moveIn(world, "woocommerce", { a, b, c });
  expect([code, (await recordsOf(world)).orders]).toMatchObject([0, [{ status: "delivered" }]]);
});

const pretty = [1, 2].map((id) =>
  JSON.stringify(wooOrder(id, { note: '"}]'.repeat(90_000) }), null, 2),
);
const array = `\ufeff[\n${pretty.join(",\n")}\n]\n`;
const lines = ndjson([wooOrder(1), wooOrder(2)]);

test.each([
  ["an array", array, 2, ""],
  ["an array that is cut in an order", array.slice(0, -10), 1, "the file is damaged, cut"],
  ["an array that is cut between two", `[${pretty[0]},\n`, 1, "the file is damaged, cut"],
  ["a line that is cut", lines.slice(0, -9), 1, "line 2, order : order must be a JSON object"],
  ["a line that is no order", `5\n${lines}`, 2, "line 1, order : order must be a JSON object"],
  ["an order that is too large", `[${"{".padEnd(5 * 2 ** 20)}}]`, 0, "line 1 has more than 4 MiB"],
  ["bytes that are no UTF-8", Buffer.from("{\xe9}", "latin1"), 0, "line 1 is no text in UTF-8"],
] as const)("move-in reads %s", async (_, text, count, reason) => {
  using world = makeHarness();
  const { code, stderr } = await moveIn(world, "woocommerce", { "orders.json": text });
  expect([code, stderr]).toEqual([reason ? 1 : 0, expect.stringContaining(reason)]);
  expect((await recordsOf(world)).orders).toHaveLength(count);
});

test("move-in brings the other orders of two shops with a prefix, and stops without one", async () => {
  using world = makeHarness();
  const run = (files: Readonly<Record<string, readonly Fields[]>>, ...args: string[]) => {
    const texts = Object.entries(files).map(([name, orders]) => [name, ndjson(orders)]);
    return moveIn(world, "woocommerce", Object.fromEntries(texts), ...args);
  };
  const other = (id: number, fields: Fields) =>
    wooOrder(id, { ...fields, billing: { email: "bob@b.example" } });
  const a = [wooOrder(1, { number: "1001", customer_id: 5 }), wooOrder(9, { email: "" })];
  const b = [other(2, { number: "1001" }), wooOrder(12, { email: "", number: "9" })];
  const c = [other(3, { customer_id: 5 })];
  const message = /\nTwo orders have the reference 1001: 1 of .* line 1 .* {"prefix": "b-"}\n$/;
  expect(await run({ a, b })).toMatchObject({ code: 1, stderr: expect.stringMatching(message) });
  expect((await run({ a })).code).toBe(0);
  expect(await run({ b })).toMatchObject(failure("reference 1001: 1 as order 1 and 2 of 2026"));
  const asUser = "The account 5 is guest1@people.example as user 1 and bob@b.example in ";
  expect(await run({ c })).toMatchObject(failure(asUser));
  expect(await run({ a, c })).toMatchObject(failure("/a and bob@b.example in "));

  const prefixed = ["--rules", rulesFile(world, { prefix: "b-" })];
  expect((await run({ b: [...b, ...c] }, ...prefixed)).code).toBe(0);
  const { owners, users } = await recordsOf(world);
  expect(owners).toEqual({
    ...{ 1001: "guest1@people.example", 9: "guest-9@no-email.invalid", "b-3": "bob@b.example" },
    ...{ "b-1001": "bob@b.example", "b-9": "guest-b-9@no-email.invalid" },
  });
  expect(users.flatMap(({ reference }) => reference ?? []).sort()).toEqual(["5", "b-5"]);
  // An account of another shop can have the same email, and stays another user.
  const shared = [wooOrder(4, { customer_id: 6, email: "guest1@people.example" })];
  expect((await run({ b: shared }, ...prefixed)).code).toBe(0);
  expect((await recordsOf(world)).owners["b-4"]).toBe("customer-b-6@no-email.invalid");
});

test("move-in stops when the orders of two shops have equal ids, and names a file that is missing", async () => {
  using world = makeHarness();
  const other = wooOrder(1, { date_created_gmt: "2025-05-05T10:00:00" });
  const files = { a: ndjson([wooOrder(1)]), b: ndjson([other]) };
  const twice = failure("Two orders have the reference 1:");
  expect(await moveIn(world, "woocommerce", files)).toMatchObject(twice);
  const renumbered = { a: files.a, b: ndjson([wooOrder(1, { number: "WC-1" })]) };
  const numbers = failure("has the numbers 1 and WC-1");
  expect(await moveIn(world, "woocommerce", renumbered)).toMatchObject(numbers);
  const missing = await world.run("move-in", "woocommerce", world.at("a"), world.at("c"));
  expect(missing).toMatchObject(failure("/c: it is missing, or no regular file"));
});

test("move-in names a directory of rejected orders that is a file, and brings nothing", async () => {
  using world = makeHarness();
  const args = ["--rejects", world.at("a")];
  const named = failure("/a: a file has this name");
  expect(await moveIn(world, "woocommerce", { a: ndjson([wooOrder(1)]) }, ...args)).toMatchObject(
    named,
  );
  expect(existsSync(world.path)).toBe(false);
});

test("move-in shows its progress on a terminal", async () => {
  using world = makeHarness();
  const environment = { DATABASE_URL: world.path };
  const args = ["move-in", "woocommerce", fixture];
  const { stderr } = await runHere(args, { environment, stdoutIsTerminal: true }).ended;
  for (const verb of ["Read", "Brought"]) expect(stderr).toContain(`\r${verb} 2 orders\u001b[K\n`);
});

test("move-in applies rules, and writes rejected orders with reason, file, line and number", async () => {
  using world = makeHarness();
  const orders = [
    wooOrder(1, { status: "packing" }),
    wooOrder(2, { currency: "XYZ" }),
    wooOrder(3, { date_created_gmt: "", date_created: "2026-07-01T10:00:00" }),
    wooOrder(4, { total: "1,000.00" }),
    { ...wooOrder(5), total: undefined },
    wooOrder(6, { status: "constructor" }),
  ];
  const args = ["--rejects", world.at("rejects")];
  const unknown = failure('order 1: status "packing" is not in the rule statuses');
  expect(await moveIn(world, "woocommerce", { a: ndjson(orders) }, ...args)).toMatchObject(unknown);
  const [name = ""] = readdirSync(world.at("rejects"));
  const rejected = Bun.JSONL.parse(readFileSync(world.at(`rejects/${name}`), "utf8"));
  const file = world.at("a");
  expect(rejected).toMatchObject([
    { file, line: 1, number: "1", order: orders[0] },
    { file, line: 2, number: "2", reason: expect.stringContaining("currency") },
    { file, line: 3, reason: expect.stringContaining("the rule time_zone is not set") },
    { file, line: 4, reason: 'total must be an amount like 1234.50, not "1,000.00"' },
    { file, line: 5, reason: "total is required" },
    { file, line: 6, reason: 'status "constructor" is not in the rule statuses' },
  ]);
  const currencies = { XYZ: { currency: "EUR", factor: 1 } };
  const rules = { statuses: { packing: "paid" }, time_zone: "Europe/Zurich", currencies };
  const a = ndjson(orders.slice(0, 3));
  const again = await moveIn(world, "woocommerce", { a }, "--rules", rulesFile(world, rules));
  expect(again.code).toBe(0);
  const found = (await recordsOf(world)).orders.find(({ reference }) => reference === "3");
  expect(found?.created_at).toBe("2026-07-01T08:00:00.000Z");
});

test.each([
  [{ statusses: {} }, "statusses is not allowed"],
  [{ statuses: { packing: "packed" } }, "statuses.packing must be one of pending, paid"],
  [{ ignored: "trash" }, "ignored must be an array of at most 100 items"],
  [{ same: { a: 5 } }, "same.a must be text"],
  [
    { currencies: { IRT: { currency: "IRT", factor: 10 } } },
    "currencies.IRT.currency must be an ISO",
  ],
  [{ prefix: "b".repeat(21) }, "prefix must be text of at most 20"],
  [{ time_zone: "Berlin" }, "'Berlin' is not a valid time zone"],
  [[], "must be a JSON object"],
])("move-in rejects the rules %j", async (rules, problem) => {
  using world = makeHarness();
  const args = ["--rules", rulesFile(world, rules as Fields)];
  expect(await moveIn(world, "woocommerce", { a: "" }, ...args)).toMatchObject(failure(problem));
  expect(existsSync(world.path)).toBe(false);
});

test.each(["woocommerce", "shopify"] as const)(
  "move-in rules prints rules of %s that it accepts",
  async (shop) => {
    using world = makeHarness();
    const { stdout } = await world.run("move-in", "rules", shop);
    await Bun.write(world.at("rules.json"), stdout);
    const { stderr } = await moveIn(world, shop, { a: "" }, "--rules", world.at("rules.json"));
    expect(stderr).toEndWith("There are no orders\n");
  },
);

test("move-in --dry-run counts what it would do, and writes nothing", async () => {
  using world = makeHarnessWithDatabase();
  const a = ndjson([wooOrder(1), wooOrder(2), wooOrder(3, { status: "?" })]);
  const would = "Would move in 2 orders (0 updated, 0 unchanged, 0 erased, 1 rejected";
  expect(await moveIn(world, "woocommerce", { a }, "--dry-run")).toMatchObject(failure(would));
  expect(await recordsOf(world)).toMatchObject({ users: [], orders: [] });
});
