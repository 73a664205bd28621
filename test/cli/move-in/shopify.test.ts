import { expect, test } from "bun:test";
import { makeHarness } from "../harness.ts";
import { csv, failure, moveIn, recordsOf, shopifyItem, shopifyRow } from "./shops.ts";

const fixture = `${import.meta.dir}/../../fixtures/shopify-orders.csv`;

test("move-in brings the orders of an export, oldest first", async () => {
  using world = makeHarness();
  const { code, stdout } = await world.run("move-in", "shopify", fixture);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^EUR +shipped +1 +1 +24\.90 +24\.90 +10\.00 +10\.00$/m);
  const { owners, orders, users } = await recordsOf(world);
  expect(owners).toEqual({ "#1001": "ann@people.example", "#1002": "bob@people.example" });
  expect(users.map(({ name }) => name)).toEqual(["Ann Lee", "Bob Zoë"]);
  const pricesOf = ({ items }: (typeof orders)[number]) =>
    items.map(({ sku, name, quantity, unit_price }) => [sku, name, quantity, unit_price]);
  expect(orders.map(pricesOf)).toEqual([
    [
      ["tea-100", "Green tea - 100 g", 1, 1000],
      ["tax", "Taxes", 1, 80],
    ],
    [
      ["tea-100", "Green tea - 100 g", 2, 1000],
      ["item", "Cup", 1, 500],
      ["shipping", "Parcel", 1, 490],
      ["discount", "TEA10", 1, -500],
    ],
  ]);
  expect(orders).toMatchObject([
    { reference: "#1001", status: "paid", created_at: "2026-03-01T09:00:00.000Z" },
    { refunded: 1000, metadata: { billing_zip: "10115", notes: "Ring twice,\nplease" } },
  ]);
  expect(orders[1]?.metadata["shop_id"]).toBe("5432109876502");
});

const first = shopifyRow(1, { Subtotal: "15.00", Total: "15.00", "Lineitem price": "10.00" });
const cup = shopifyItem(1, "Cup", "5.00");
const other = shopifyRow(2);
const text = csv([first, cup, other]);
const windows = csv([{ ...first, "Billing Name": "Zo\xeb \x93A\x94" }, cup], ";");
const withTabs = csv([first, cup, other], "\t").replaceAll("\n", "\r\n");
const restOnly = csv([first, cup]).replace(/\n#1,g.*\n/, "\n");

test.each([
  ["semicolons and Windows-1252", [Buffer.from(windows, "latin1")]],
  ["tabs and a byte order mark", [`\ufeff${withTabs}`]],
  ["rows that a spreadsheet has sorted", [csv([cup, other, first])]],
  ["an order that goes on in another file", [csv([other, first]), restOnly]],
  ["an order of which one file has a part", [csv([first, cup]), csv([first])]],
  ["an order that two files have", [text.replace("paid", "pending"), text]],
  ["amounts with a comma", [text.replaceAll("10.00", '"10,00"')]],
  ["an id that a spreadsheet has rounded", [text.replaceAll(/,50000000000(\d)+/g, ",5E+12")]],
] as const)("move-in reads %s", async (title, files) => {
  using world = makeHarness();
  const named = Object.fromEntries(files.map((file, at) => [`orders-${at}.csv`, file]));
  const { code, stderr } = await moveIn(world, "shopify", named);
  expect([code, stderr]).toEqual([0, expect.stringContaining(" 0 rejected")]);
  const { users, orders } = await recordsOf(world);
  expect(users.map(({ name }) => name)).toContain(title.endsWith("1252") ? "Zoë “A”" : "Ann Lee");
  const found = orders.find(({ reference }) => reference === "#1");
  expect(found?.status).toBe("paid");
  expect(found?.items.map(({ name, unit_price }) => `${name} ${unit_price}`).sort()).toEqual([
    "Cup 500",
    "Tea 1000",
  ]);
});

const changed = (fields: Record<string, string>) => csv([{ ...first, ...fields }, cup, other]);
const rewritten = "line 2, order #1: Created at must be a time like 2026-11-20 18:57:03 +0100";
const price = { "Lineitem price": "10. Dez" };
const wrongPrice = 'must be an amount like 1234.50, not "10. Dez"';

test.each([
  ["a rewritten date", changed({ "Created at": "22/03/2026 19:28" }), rewritten],
  ["the 30th of February", changed({ "Created at": "2026-02-30 10:00:00 +0100" }), "be a time"],
  [
    "rows that begin in a file that is missing",
    csv([other, cup]),
    "line 3, order #1: order has no",
  ],
  ["an order whose rows are missing", csv([first, other]), "items are less than the subtotal"],
  ["a row that is cut", `${csv([other, first])}#1,g`, "order is cut at line 4"],
  ["a price that has become a date", changed(price), wrongPrice],
  ["a quantity that is none", changed({ "Lineitem quantity": "two" }), "must be a number"],
])("move-in rejects %s, and brings the others", async (_, file, reason) => {
  using world = makeHarness();
  expect(await moveIn(world, "shopify", { "orders.csv": file })).toMatchObject(failure(reason));
  expect((await recordsOf(world)).orders.map(({ reference }) => reference)).toEqual(["#2"]);
});

test.each([
  ["is no export of orders", "email,name\na@b.cd,Ann\n", "header lacks the columns Name, Email"],
  ["is a spreadsheet", "PK\x03\x04", "it is a spreadsheet or another ZIP archive"],
  ["ends in quotes", text.replace("Ann", '"Ann'), "is not valid CSV"],
])("move-in names a file that %s, and brings nothing", async (_, file, reason) => {
  using world = makeHarness();
  const { code, stderr } = await moveIn(world, "shopify", { "a.csv": text, "orders.csv": file });
  expect([code, stderr.includes(reason), stderr.includes("orders.csv: ")]).toEqual([1, true, true]);
  expect((await recordsOf(world)).orders).toEqual([]);
});

const refunded = { "Financial Status": "refunded", "Refunded Amount": "10.00" };
const canceled = { "Fulfillment Status": "fulfilled", "Cancelled at": "2026-01-02 10:00:00 +0100" };
const giftCard = { Total: "4.00", Subtotal: "10.00", "Lineitem price": "10.00" };
test.each([
  ["is pending", { "Financial Status": "pending" }, { status: "pending" }],
  ["is refunded", refunded, { status: "canceled", refunded: 1000 }],
  ["is voided", { "Financial Status": "voided" }, { status: "canceled" }],
  ["is canceled", canceled, { status: "canceled" }],
  ["is in yen", { Currency: "JPY", Total: "240.00" }, { total: 240 }],
  ["is in yen without decimals", { Currency: "JPY", Total: "240" }, { total: 240 }],
  ["has a gift card", giftCard, { items: [{}, { unit_price: -600 }] }],
])("move-in brings an order that %s", async (_, fields, expected) => {
  using world = makeHarness();
  const orders = csv([shopifyRow(1, fields as Record<string, string>)]);
  const { code } = await moveIn(world, "shopify", { "orders.csv": orders });
  expect([code, (await recordsOf(world)).orders]).toMatchObject([0, [expected]]);
});

test("move-in keeps the id of an order in the shop when a spreadsheet has rounded it since", async () => {
  using world = makeHarness();
  await moveIn(world, "shopify", { "a.csv": text });
  const rounded = text.replaceAll(/,50000000000(\d)+/g, ",5E+12");
  const { code, stderr } = await moveIn(world, "shopify", { "a.csv": rounded });
  expect([code, stderr]).toEqual([0, expect.stringContaining("0 orders (0 updated, 2 unchanged")]);
  const [{ metadata } = { metadata: {} }] = (await recordsOf(world)).orders;
  expect(metadata).toMatchObject({ shop_id: "5000000000001" });
});

test("move-in stops at two shops, also whose ids a spreadsheet has rounded, in one run and in two", async () => {
  using world = makeHarness();
  const whole = { a: text, b: csv([shopifyRow(1, { Id: "6000000000001" })]) };
  const rounded = { ...first, Id: "5.12346E+12" };
  const a = csv([rounded, cup]);
  const b = csv([{ ...rounded, "Created at": "2025-03-05 10:00:00 +0100" }, cup]);
  const stopped = failure("have the reference #1");
  for (const files of [whole, { a, b }])
    expect(await moveIn(world, "shopify", files)).toMatchObject(stopped);
  expect((await moveIn(world, "shopify", { a: csv([first, cup]) })).code).toBe(0);
  expect(await moveIn(world, "shopify", { b })).toMatchObject(stopped);
});
