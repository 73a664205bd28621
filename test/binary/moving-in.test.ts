// Runs the commands of docs/moving-in.md on orders as the REST API of WooCommerce returns them.
import { describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { discounted, woocommerceLines } from "../fixtures/woocommerce.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { binary, type Outcome, runProgram } from "../support/program.ts";

const root = `${import.meta.dir}/../..`;
const page = await Bun.file(`${root}/docs/moving-in.md`).text();
const blocks = [...page.matchAll(/^( *)```(?:sh|jq)\n(.*?)^ *```$/gms)].map(
  ([, indent = "", block = ""]) => block.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
);
const [
  save = "",
  keepIds = "",
  importUsers = "",
  importOrders = "",
  countReasons = "",
  importCorrected = "",
  findTexts = "",
  importTexts = "",
  compare = "",
] = blocks;
/** Copies the rules to where the commands run. */
const copyRules = `cp "${root}/docs/examples/woo.jq" .\n`;
const program = `user-api() { "${binary}" "$@"; }\n`;

/** Only the fields that the commands read. The total of the second order is a cent more than its lines. */
const orders: object[] = await Bun.file(
  `${import.meta.dir}/../fixtures/woocommerce-orders.json`,
).json();

/** Runs commands where the files of the earlier ones are. */
function run(directory: TemporaryDirectory, ...commands: readonly string[]): Promise<Outcome> {
  const script = `${program}set -o pipefail\n${commands.join("")}`;
  return runProgram(["bash", "-c", script], {
    cwd: directory.path,
    env: { PATH: Bun.env["PATH"], DATABASE_URL: directory.at("shop.db") },
  });
}

async function exportOf(directory: TemporaryDirectory, table: "users" | "orders"): Promise<any[]> {
  return Bun.JSONL.parse((await run(directory, `user-api export ${table}\n`)).stdout);
}

function writeOrders(directory: TemporaryDirectory, lines: readonly string[]): void {
  writeFileSync(directory.at("woo-orders.ndjson"), `${lines.join("\n")}\n`);
}

/** Changes a text in a file, as an operator does in an editor. */
function correct(path: string, wrong: string | RegExp, right: string): void {
  const text = readFileSync(path, "utf8");
  expect(text).toMatch(wrong);
  writeFileSync(path, text.replaceAll(wrong, right));
}

const minorUnits = { EUR: 100, USD: 100, JPY: 1, KWD: 1000 } as const;

/** @returns the sum of each currency, e.g. `{ EUR: 1999 }` */
function sumsOf(totals: readonly { readonly currency: string; readonly total: number }[]) {
  const sums: Record<string, number> = {};
  for (const { currency, total } of totals) sums[currency] = (sums[currency] ?? 0) + total;
  return sums;
}

const hasJq = Bun.which("jq") !== null;
describe.skipIf(binary === "" || !hasJq)(
  `docs/moving-in.md${hasJq ? "" : " (skipped: jq is not installed)"}`,
  () => {
    test("commands import the users and orders of a shop, and a discount as an item", async () => {
      using directory = makeDirectory();
      const all = [...orders, ...discounted.map((changes) => ({ ...orders[1], ...changes }))];
      writeOrders(
        directory,
        all.map((order) => JSON.stringify(order)),
      );
      const { code, stdout, stderr } = await run(
        directory,
        ...["set -e\n", copyRules, importUsers, importOrders, compare],
      );
      expect([code, stderr]).toEqual([0, expect.stringContaining("Imported 4 orders")]);
      expect(stdout).toBe("All totals agree\nok\n");
      expect(await exportOf(directory, "users")).toMatchObject([
        { email: "john.doe@example.com", name: "John Doe" },
      ]);
      const [first, second, ...others] = await exportOf(directory, "orders");
      expect(first).toMatchObject({ id: 1, user_id: 1, status: "paid", total: 2935, version: 1 });
      expect(first.created_at).toBe("2025-03-22T19:28:02.000Z");
      expect(JSON.stringify(first.metadata)).toBe(
        '{"woo_number":"2025-727","woo_status":"processing"}',
      );
      expect(first.items).toEqual([
        { sku: "tea-01", name: "2 × Green tea", quantity: 1, unit_price: 1335 },
        { sku: "product-93", name: "3 × Green tea", quantity: 1, unit_price: 500 },
        { sku: "shipping", name: "shipping", quantity: 1, unit_price: 1000 },
        { sku: "fee", name: "Gift wrap", quantity: 1, unit_price: 100 },
      ]);
      expect(second).toMatchObject({ user_id: 1, status: "canceled", total: 2001 });
      expect(second.items).toEqual([
        { sku: "tea-01", name: "2 × Green tea", quantity: 1, unit_price: 2001 },
      ]);
      const item = { sku: "tea-9", name: "Tea", quantity: 1, unit_price: 1000 };
      expect(others).toMatchObject(
        ["fee", "discount"].map((sku) => ({
          total: 500,
          items: [item, item, item, { sku, quantity: 1, unit_price: -2500 }],
        })),
      );
    });

    test("commands keep the ids when the rules say so, and find a user by another case of the email", async () => {
      using directory = makeDirectory();
      writeOrders(
        directory,
        orders.map((order) => JSON.stringify(order)),
      );
      writeFileSync(directory.at("first.ndjson"), '{"email":"John.Doe@Example.com"}\n');
      await run(directory, "user-api import users first.ndjson\n", copyRules);
      correct(directory.at("woo.jq"), /^def identity: .*$/gm, keepIds.trim());
      // The import of users reports that the email is taken.
      const { stderr } = await run(directory, importUsers, importOrders);
      expect(stderr).toContain("email is already taken by user 1");
      expect(stderr).toContain("Imported 2 orders");
      expect(await exportOf(directory, "orders")).toMatchObject([
        { id: 727, user_id: 1, total: 2935 },
        { id: 730, user_id: 1, total: 2001 },
      ]);
    });

    test("commands import every order of a shop once when many have mistakes and are corrected", async () => {
      using directory = makeDirectory();
      const lines = [...woocommerceLines(600)];
      writeOrders(
        directory,
        lines.map(({ text }) => text),
      );
      const first = await run(directory, copyRules, importUsers, importOrders);
      expect(first.stderr).toContain("rejected records are in orders-rejected.ndjson");
      const { stdout: reasons } = await run(directory, countReasons);
      expect(reasons).toContain("6 import_text must be replaced by the fields of the record\n");
      expect(reasons).toContain(" status must be one of pending, paid");
      expect(reasons).toContain(" user_email must be an email address");

      // A status of a plugin.
      correct(directory.at("woo.jq"), 'completed: "delivered"', '$&, packing: "paid"');
      await run(directory, "rm *-rejected.ndjson\n", importUsers, importOrders);
      const { stdout: remaining } = await run(directory, countReasons);
      expect(remaining).not.toContain("status must be");

      for (const table of ["users", "orders"]) {
        correct(directory.at(`${table}-rejected.ndjson`), /(@shop\d)"/g, '$1.example"');
      }
      const corrected = await run(directory, importCorrected);
      expect(corrected.stderr).not.toContain("user_email");

      await run(directory, findTexts);
      correct(directory.at("woo-corrected.ndjson"), /,\}$/gm, "}");
      correct(directory.at("woo-corrected.ndjson"), /\]$/gm, "]}");
      const texts = await run(directory, importTexts);
      expect(texts.stderr).toContain("Imported 6 orders (0 unchanged, 0 rejected)");

      const compared = await run(directory, compare);
      expect([compared.code, compared.stdout]).toEqual([0, "All totals agree\nok\n"]);
      const imported = await exportOf(directory, "orders");
      const expected = lines.map(({ valid }) => JSON.parse(valid));
      const numbers = imported.map(({ metadata }) => metadata.woo_number);
      expect(numbers.toSorted()).toEqual(expected.map(({ number }) => number).toSorted());
      const totals = expected.map(({ currency, total }) => ({
        currency,
        total: Math.round(Number(total) * minorUnits[currency as keyof typeof minorUnits]),
      }));
      expect(sumsOf(imported)).toEqual(sumsOf(totals));

      const users = await exportOf(directory, "users");
      const again = await run(directory, "rm *-rejected.ndjson\n", importUsers, importOrders);
      expect(again.stderr).toContain("Imported 0 orders");
      expect(await exportOf(directory, "orders")).toEqual(imported);
      // The wrong emails are rejected again.
      expect(await exportOf(directory, "users")).toEqual(users);
    }, 120_000);

    test.skipIf(Bun.which("curl") === null)(
      "commands save all pages of orders, and report a page that fails, is no JSON or is empty",
      async () => {
        using directory = makeDirectory();
        let failing: { readonly body: string; readonly status: number } | null = null;
        await using shop = Bun.serve({
          port: 0,
          hostname: "127.0.0.1",
          fetch({ url }) {
            const at = Number(new URL(url).searchParams.get("page"));
            if (at === 2 && failing !== null) return new Response(failing.body, failing);
            return Response.json(orders.slice(at - 1, at));
          },
        });
        const command = save.replace("https://shop.example.com", shop.url.origin);
        for (failing of [
          { body: "<html>", status: 404 },
          { body: "<html>", status: 200 },
          // What curl makes of a response that breaks in its headers.
          { body: "", status: 200 },
        ]) {
          const { code, stderr } = await run(directory, command);
          expect([code, stderr]).toEqual([1, expect.stringContaining("Page 2 failed")]);
        }
        failing = null;
        const { code } = await run(directory, command);
        const saved = readFileSync(directory.at("woo-orders.ndjson"), "utf8");
        expect([code, Bun.JSONL.parse(saved)]).toEqual([0, orders]);
      },
    );
  },
);
