// Runs the commands of docs/moving-in.md on orders as the REST API of WooCommerce returns them.
import { describe, expect, test } from "bun:test";
import { makeDirectory } from "./directory.ts";
import { withStore } from "./open-store.ts";
import { runProgram } from "./program.ts";

const root = `${import.meta.dir}/..`;
const page = await Bun.file(`${root}/docs/moving-in.md`).text();
/** The first block calls WooCommerce. */
const [saving = "", ...blocks] = [...page.matchAll(/^```sh\n(.*?)^```$/gms)].map(
  ([, block]) => block ?? "",
);
const script = blocks.join("");
const program = `user-api() { "${process.execPath}" "${root}/src/main.ts" "$@"; }\n`;

/** The total of the second order is a cent more than its lines. Only the fields that the commands read. */
const orders: object[] = await Bun.file(
  `${import.meta.dir}/fixtures/woocommerce-orders.json`,
).json();

const hasJq = Bun.which("jq") !== null;
describe.skipIf(!hasJq)(
  `docs/moving-in.md${hasJq ? "" : " (skipped: jq is not installed)"}`,
  () => {
    test("commands import the users and orders of a shop, and report a total that differs", async () => {
      using directory = makeDirectory();
      // Two pages, one after the other.
      await Bun.write(
        directory.at("woo-orders.json"),
        orders.map((order) => JSON.stringify([order])).join("\n"),
      );
      const command = `${program}set -e -o pipefail\n${script}`;
      const database = directory.at("shop.db");
      const { code, stdout, stderr } = await runProgram(["bash", "-c", command], {
        cwd: directory.path,
        env: { PATH: Bun.env["PATH"], DATABASE_URL: database },
      });
      expect([code, stderr]).toEqual([0, expect.stringContaining("Imported 2 orders")]);
      expect(stdout).toBe('{"id":730,"expected":2001,"total":2000}\n');
      const users = await Bun.file(directory.at("users.ndjson")).text();
      expect(users).toBe('{"email":"john.doe@example.com","name":"John Doe"}\n');

      const read = (id: number) => withStore(database, async (store) => store.orders.get(id));
      const first = JSON.parse((await read(727))?.json ?? "");
      expect(first).toMatchObject({ user_id: 1, status: "paid", total: 2935, version: 1 });
      expect(first.created_at).toBe("2025-03-22T19:28:02.000Z");
      expect(first.items).toEqual([
        { sku: "tea-01", name: "2 × Green tea", quantity: 1, unit_price: 1335 },
        { sku: "product-93", name: "3 × Green tea", quantity: 1, unit_price: 500 },
        { sku: "shipping", name: "shipping", quantity: 1, unit_price: 1000 },
        { sku: "fee", name: "Gift wrap", quantity: 1, unit_price: 100 },
      ]);
      const second = JSON.parse((await read(730))?.json ?? "");
      expect(second).toMatchObject({ user_id: 1, status: "canceled" });
      expect(second.items).toEqual([
        { sku: "tea-01", name: "Green tea", quantity: 2, unit_price: 1000 },
      ]);
    });

    test("commands find a user whose email has capital letters", async () => {
      using directory = makeDirectory();
      await Bun.write(directory.at("woo-orders.json"), JSON.stringify(orders));
      const database = directory.at("shop.db");
      await Bun.write(directory.at("first.ndjson"), '{"email":"John.Doe@Example.com"}\n');
      // The import of users reports that the email is taken.
      const command = `${program}user-api import users first.ndjson\n${script}`;
      const { stderr } = await runProgram(["bash", "-c", command], {
        cwd: directory.path,
        env: { PATH: Bun.env["PATH"], DATABASE_URL: database },
      });
      expect(stderr).toContain("Imported 2 orders");
      const order = await withStore(database, async (store) => store.orders.get(727));
      expect(JSON.parse(order?.json ?? "")).toMatchObject({ user_id: 1 });
    });

    test.skipIf(Bun.which("curl") === null)(
      "commands save all pages of orders, and report a page that fails",
      async () => {
        using directory = makeDirectory();
        let failingPage = 2;
        await using shop = Bun.serve({
          port: 0,
          hostname: "127.0.0.1",
          fetch({ url }) {
            const at = Number(new URL(url).searchParams.get("page"));
            if (at === failingPage) return new Response(null, { status: 404 });
            return Response.json(orders.slice(at - 1, at));
          },
        });
        const command = saving.replace("https://shop.example.com", shop.url.origin);
        const options = { cwd: directory.path, env: { PATH: Bun.env["PATH"] } };
        const failed = await runProgram(["bash", "-c", command], options);
        expect([failed.code, failed.stderr]).toEqual([1, expect.stringContaining("Page 2 failed")]);
        failingPage = 0;
        const { code } = await runProgram(["bash", "-c", command], options);
        const saved = await Bun.file(directory.at("woo-orders.json")).text();
        // Two arrays, one after the other.
        expect([code, JSON.parse(saved.replace("][", ","))]).toEqual([0, orders]);
      },
    );
  },
);
