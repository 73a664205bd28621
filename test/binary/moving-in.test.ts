// Runs the commands of docs/moving-in.md on orders as the REST API of WooCommerce returns them.
import { describe, expect } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { woocommerceLines } from "../fixtures/woocommerce.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { commands, correct, exportOf, run } from "./moving-in.ts";
import { test, testIf } from "./on-binary.ts";

const { copyRules, importUsers, importOrders, countReasons, compare } = commands;
const { importCorrected, findTexts, importTexts } = commands;

/** Only the fields that the commands read. The total of the second order is a cent more than its lines. */
const orders: object[] = await Bun.file(
  `${import.meta.dir}/../fixtures/woocommerce-orders.json`,
).json();

function writeOrders(directory: TemporaryDirectory, lines: readonly string[]): void {
  writeFileSync(directory.at("woo-orders.ndjson"), `${lines.join("\n")}\n`);
}

const minorUnits = { EUR: 100, USD: 100, JPY: 1, KWD: 1000 } as const;

const tea = {
  ...{ name: "Tea", product_id: 9, sku: "tea-9" },
  ...{ quantity: 1, total: "10.00", total_tax: "0" },
};
const cheap = { total: "5.00", line_items: [tea, tea, tea] };
const giftCard = { name: "Gift card", total: "-24.50", total_tax: "-0.50" };
/** Orders with a gift card of 25.00: as a fee, and as a plugin does that changes only the total. */
const discounted = [
  { ...orders[1], ...cheap, id: 731, number: "731", fee_lines: [giftCard] },
  { ...orders[1], ...cheap, id: 732, number: "732" },
];

const isSkipped = Bun.which("jq") === null || Bun.which("curl") === null;
describe.skipIf(isSkipped)(`docs/moving-in.md${isSkipped ? " (needs jq and curl)" : ""}`, () => {
  test("commands import the users and orders of a shop, and a discount as an item", async () => {
    using directory = makeDirectory();
    writeOrders(
      directory,
      [...orders, ...discounted].map((order) =>
        JSON.stringify(order).replace("Gift wrap", "Gift &amp; &#8211; &quot;"),
      ),
    );
    const parts = ["set -e\n", copyRules, importUsers, importOrders, compare];
    const { code, stdout, stderr } = await run(directory, ...parts);
    expect([code, stderr]).toEqual([0, expect.stringContaining("Imported 4 orders")]);
    expect(stdout).toBe("All totals agree\nok\n");
    const john = { email: "john.doe@example.com", name: "John Doe" };
    expect(await exportOf(directory, "users")).toMatchObject([john]);
    const [first, second, ...others] = await exportOf(directory, "orders");
    expect(first).toMatchObject({ id: 1, user_id: 1, status: "paid", total: 2935, version: 1 });
    expect(first.created_at).toBe("2025-03-22T19:28:02.000Z");
    expect(JSON.stringify(first.metadata)).toBe(
      '{"woo_id":"727","woo_status":"processing","billing_first_name":"John","billing_last_name":"Doe"}',
    );
    expect(first.items).toEqual([
      { sku: "tea-01", name: "2 × Green tea", quantity: 1, unit_price: 1335 },
      { sku: "product-93", name: "3 × Green tea", quantity: 1, unit_price: 500 },
      { sku: "shipping", name: "shipping", quantity: 1, unit_price: 1000 },
      { sku: "fee", name: 'Gift & – "', quantity: 1, unit_price: 100 },
    ]);
    const items = [{ ...first.items[0], unit_price: 2001 }];
    expect(second).toMatchObject({ user_id: 1, status: "canceled", total: 2001, items });
    const item = { sku: "tea-9", name: "Tea", quantity: 1, unit_price: 1000 };
    const cut = { quantity: 1, unit_price: -2500 };
    const cheaper = (sku: string) => ({ total: 500, items: [item, item, item, { sku, ...cut }] });
    expect(others).toMatchObject([cheaper("fee"), cheaper("discount")]);
  });

  test("commands make a user of each account and each guest, and give a shared email to the newest account", async () => {
    using directory = makeDirectory();
    const person = (customer: number, email: string, name = "") => ({
      customer_id: customer,
      billing: { first_name: name, last_name: "", email },
    });
    const people = [
      person(55, "old@a.example", "Ann"),
      person(55, "family@a.example"),
      person(56, "Family@a.example", "Bob"),
      person(0, "family@a.example", "Guest"),
      person(0, "guest@a.example"),
      person(57, "", "No Email"),
      person(0, ""),
    ];
    const orderOf = (fields: object, index: number) =>
      JSON.stringify({ ...orders[0], ...fields, id: index, number: `${index}` });
    writeOrders(directory, people.map(orderOf));
    // A guest who has an account now.
    writeFileSync(directory.at("first.ndjson"), '{"email":"FAMILY@A.Example","name":"B"}\n');
    const first = "user-api import users first.ndjson\n";
    const parts = [copyRules, "set -e\n", first, importUsers, importOrders];
    expect((await run(directory, ...parts)).code).toBe(0);
    const users = await exportOf(directory, "users");
    expect(users.map(({ reference, email, name }) => [reference, email, name])).toEqual([
      ["56", "family@a.example", "Bob"],
      ["57", "customer-57@no-email.invalid", "No Email"],
      ["55", "customer-55@no-email.invalid", "Ann"],
      [null, "guest-6@no-email.invalid", null],
      [null, "guest@a.example", null],
    ]);
    const imported = await exportOf(directory, "orders");
    expect(imported.map(({ user_id }) => user_id)).toEqual([3, 3, 1, 1, 5, 2, 4]);
  });

  testIf(isLong)(
    "commands import every order of a shop once when many have mistakes and are corrected",
    async () => {
      using directory = makeDirectory();
      const lines = [...woocommerceLines(400)];
      const texts = lines.map(({ text }) => text);
      writeOrders(directory, texts);
      const first = await run(directory, copyRules, importUsers, importOrders);
      expect(first.stderr).toContain("rejected records are in orders-rejected.ndjson");
      const { stdout: reasons } = await run(directory, countReasons);
      expect(reasons).toContain("4 import_text must be replaced by the fields of the record\n");
      expect(reasons).toContain(" status must be one of pending, paid");
      expect(reasons).toContain(" user_email must be an email address");

      // A status of a plugin.
      correct(directory.at("woo.jq"), 'completed: "delivered"', '$&, packing: "paid"');
      const again = ["rm *-rejected.ndjson\n", importUsers, importOrders];
      const { stdout: remaining } = await run(directory, ...again, countReasons);
      expect(remaining).not.toContain("status must be");

      for (const table of ["users", "orders"]) {
        correct(directory.at(`${table}-rejected.ndjson`), /(@shop\d)"/g, '$1.example"');
      }
      const corrected = await run(directory, importCorrected, findTexts);
      expect(corrected.stderr).not.toContain("user_email");
      correct(directory.at("woo-corrected.ndjson"), /,\}$/gm, "}");
      correct(directory.at("woo-corrected.ndjson"), /\]$/gm, "]}");
      const imports = await run(directory, importTexts);
      expect(imports.stderr).toContain("Imported 4 orders (0 unchanged, 0 rejected)");

      const compared = await run(directory, compare);
      expect([compared.code, compared.stdout]).toEqual([0, "All totals agree\nok\n"]);
      const imported = await exportOf(directory, "orders");
      const expected = lines.map(({ valid }) => JSON.parse(valid));
      const totals = imported.map(({ reference, currency, total }) => [reference, currency, total]);
      expect(totals.toSorted()).toEqual(
        expected
          .map(({ number, currency, total }) => [
            ...[number, currency],
            Math.round(Number(total) * minorUnits[currency as keyof typeof minorUnits]),
          ])
          .toSorted(),
      );

      const users = await exportOf(directory, "users");
      expect((await run(directory, ...again)).stderr).toContain("Imported 0 orders");
      expect(await exportOf(directory, "orders")).toEqual(imported);
      // The wrong emails are rejected again.
      expect(await exportOf(directory, "users")).toEqual(users);
    },
  );

  testIf(isLong)(
    "commands save all pages of orders, and report a page that fails, is no JSON or is empty",
    async () => {
      using directory = makeDirectory();
      const all = [1, 2, 3, 4, 5, 6, 7].map((id) => ({ id }));
      let left = all;
      let failing: { readonly body: string; readonly status: number } | null = null;
      await using shop = Bun.serve({
        port: 0,
        hostname: "127.0.0.1",
        fetch({ url }) {
          const at = Number(new URL(url).searchParams.get("offset"));
          if (at === 3 && failing !== null) return new Response(failing.body, failing);
          // Orders that have been saved are deleted when later ones are requested.
          if (at === 5) left = all.slice(2);
          return Response.json(left.slice(at, at + 2));
        },
      });
      const command = commands.save.replace("https://shop.example.com", shop.url.origin);
      // The last one is what curl makes of a response that breaks in its headers.
      for (const [body, status] of [
        ["<html>", 404] as const,
        ["<html>", 200],
        ["", 200],
      ] as const) {
        failing = { body, status };
        const { code, stderr } = await run(directory, command);
        expect([code, stderr]).toEqual([1, expect.stringContaining("The page at 3 failed")]);
      }
      failing = null;
      left = all;
      const { code } = await run(directory, command);
      const saved = readFileSync(directory.at("woo-orders.ndjson"), "utf8");
      expect([code, Bun.JSONL.parse(saved)]).toEqual([0, all]);
    },
  );
});
