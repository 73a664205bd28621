// Reads the orders of a shop from its REST API.
import { expect, test } from "bun:test";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { systemClock } from "../../../src/base/clock.ts";
import { makeDirectory } from "../../support/directory.ts";
import { runHere } from "../../support/run-here.ts";
import { type Fields, failure, wooOrder } from "./shops.ts";

const all = Array.from({ length: 7 }, (_, at) => wooOrder(2 * at + 1));
const authorization = `Basic ${btoa("ck_a1:cs_b2")}`;

interface Request {
  readonly offset: number;
  readonly count: number;
  readonly orders: Fields[];
}

/** @param answer replaces a page, or changes the orders before it */
function openShop(answer: (request: Request) => Response | undefined = () => undefined) {
  const directory = makeDirectory();
  const [key, save] = [directory.at("key"), directory.at("orders.ndjson")];
  writeFileSync(key, "ck_a1\r\ncs_b2\n");
  const orders = [...all];
  const requests: string[] = [];
  const sizes: number[] = [];
  const pauses: number[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch({ url, headers }) {
      const { pathname, searchParams } = new URL(url);
      const offset = Number(searchParams.get("offset"));
      requests.push(`${pathname} ${searchParams.get("orderby")} ${searchParams.get("order")}`);
      sizes.push(Number(searchParams.get("per_page")));
      if (headers.get("authorization") !== authorization)
        return new Response("{}", { status: 401 });
      const other = answer({ offset, count: requests.length, orders });
      // Whatever the client asks for, this shop has pages of three.
      return other ?? Response.json(orders.slice(offset, offset + 3));
    },
  });
  const sleep = async (ms: number) => void pauses.push(ms);
  const environment = { DATABASE_URL: directory.at("data/test.db") };
  const options = { clock: { ...systemClock, sleep }, environment };
  return {
    ...{ directory, orders, requests, sizes, pauses, save, url: `${server.url}` },
    partial: `${save}.${server.url.host.replace(":", "-")}.partial`,
    run: (url = `${server.url}`) =>
      runHere(["move-in", "woocommerce", url, "--key-file", key, "--save", save], options).ended,
    saved: () => (Bun.JSONL.parse(readFileSync(save, "utf8")) as Fields[]).map(({ id }) => id),
    async [Symbol.asyncDispose]() {
      await server.stop(true);
      directory[Symbol.dispose]();
    },
  };
}
const ids = all.map(({ id }) => Number(id));

test("move-in saves all pages of a shop in a file that only its owner can read, and moves it in", async () => {
  await using shop = openShop();
  const { code, stdout, stderr } = await shop.run();
  expect([code, stderr]).toEqual([0, expect.stringContaining("Moved in 7 orders")]);
  expect(stdout).toMatch(/^EUR +paid +7 +7 +70\.00 +70\.00/m);
  expect([shop.saved(), statSync(shop.save).mode & 0o777]).toEqual([ids, 0o600]);
  expect(new Set(shop.requests)).toEqual(new Set(["/wp-json/wc/v3/orders id asc"]));
  expect(existsSync(shop.partial)).toBe(false);
  expect(await shop.run()).toMatchObject(failure("orders.ndjson: it exists, and is complete"));
});

test("move-in skips no order when others are deleted or come back meanwhile", async () => {
  await using shop = openShop(({ count, orders }) => {
    if (count === 2) orders.splice(0, 2);
    // Also 9, the last one that it has read.
    if (count === 4) orders.splice(0, 3, wooOrder(2));
    return undefined;
  });
  expect((await shop.run()).code).toBe(0);
  expect(shop.saved()).toEqual(ids);
});

test.each([
  ["returns the same page for every offset", all, "returns the same ones for every offset"],
  ["ignores the order by id", all.toReversed(), "does not return them by id"],
])("move-in ends when the shop %s", async (_, orders, problem) => {
  await using shop = openShop(() => Response.json(orders.slice(0, 3)));
  expect(await shop.run()).toMatchObject(failure(problem));
});

test("move-in does not continue the file of another shop", async () => {
  let isBroken = true;
  await using shop = openShop(({ offset }) =>
    offset > 2 && isBroken ? new Response("", { status: 404 }) : undefined,
  );
  const other = shop.url.replace("127.0.0.1", "localhost");
  expect(await shop.run(other)).toMatchObject(failure("; 5 orders are in "));
  isBroken = false;
  shop.requests.length = 0;
  expect((await shop.run()).code).toBe(0);
  expect([shop.saved(), shop.requests.length]).toEqual([ids, 4]);
});

test("move-in repeats what fails with longer pauses and smaller pages, and continues later where it was interrupted", async () => {
  let isBroken = true;
  const failures = [
    () => new Response("", { status: 429, headers: { "retry-after": "30" } }),
    () => new Response("<html>", { status: 503 }),
    () => new Response('[{"id": 1'),
    () => Response.json({ message: "no page" }),
  ];
  await using shop = openShop(({ offset, count }) =>
    offset > 2 && isBroken ? failures[count % failures.length]?.() : undefined,
  );
  expect(await shop.run()).toMatchObject(failure("; 5 orders are in "));
  expect(shop.pauses.filter((ms) => ms > 100)).toHaveLength(6);
  expect(Math.max(...shop.pauses)).toBe(32_000);
  expect(shop.sizes.slice(0, 7)).toEqual([100, 100, 100, 50, 25, 12, 10]);
  const { partial } = shop;
  writeFileSync(partial, readFileSync(partial, "utf8").slice(0, -20));
  isBroken = false;
  shop.requests.length = 0;
  const last = await shop.run();
  expect([last.code, last.stderr]).toEqual([0, expect.stringContaining("Moved in 7 orders")]);
  expect([shop.saved(), shop.requests.length]).toEqual([ids, 3]);
});

test.each([
  ["http://shop.example.com", 2, "Invalid source: must be https://…"],
  ["https://user:secret@shop.example.com", 2, "without a user"],
])("move-in rejects %s", async (url, code, message) => {
  await using shop = openShop();
  expect(await shop.run(url)).toMatchObject({ code, stderr: expect.stringContaining(message) });
  expect(existsSync(shop.directory.at("data"))).toBe(false);
});

test("move-in stops at once when the shop rejects the key, and does not repeat it", async () => {
  await using shop = openShop();
  writeFileSync(shop.directory.at("key"), "ck_a1\ncs_wrong\n");
  const { code, stderr } = await shop.run();
  expect([code, shop.requests.length, stderr.includes("cs_")]).toEqual([1, 1, false]);
  expect(stderr).toContain("Cannot read the orders: status 401");
  writeFileSync(shop.directory.at("key"), "cs_b2");
  expect((await shop.run()).stderr).toContain(
    "must contain two lines, the key ck_… and the secret",
  );
});
