// Moves two shops of many orders in three times, with changes on both sides, and adds up what is here.
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import type { Order } from "../../src/domain/order.ts";
import { patchOrder } from "../../src/domain/order.ts";
import { patchUser, type User } from "../../src/domain/user.ts";
import { shopifyCsv } from "../fixtures/shopify.ts";
import { cleanOrders, type WooOrder } from "../fixtures/woocommerce.ts";
import { findCluster } from "../postgres/cluster.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { withStore } from "../support/open-store.ts";
import { watchPeakMemory } from "../support/peak-memory.ts";
import { binary, startProgram } from "../support/program.ts";

/** `MOVE_IN_ORDERS=50000` measures. */
const COUNT = Number(Bun.env["MOVE_IN_ORDERS"] ?? (isLong ? 4000 : 2000));
/** With 80 MB that any command has which opens the database. */
const MAX_BYTES = 280 * 2 ** 20;

const decimals: Readonly<Record<string, number>> = { JPY: 0, KWD: 3 };
const minor = (amount: string | number, currency: string) =>
  Math.round(Number(amount) * 10 ** (decimals[currency] ?? 2));

/** @returns orders, totals and refunds by currency */
function sumsOf(orders: readonly Pick<Order, "currency" | "total" | "refunded">[]) {
  const sums: Record<string, readonly [orders: number, total: number, refunded: number]> = {};
  for (const { currency, total, refunded } of orders) {
    const [count, totals, refunds] = sums[currency] ?? [0, 0, 0];
    sums[currency] = [count + 1, totals + total, refunds + refunded];
  }
  return sums;
}

/** What the shop says. */
function expectedOf(orders: readonly WooOrder[]) {
  const amounts = orders.map(({ currency, total: text, refunds }) => {
    const refunded = refunds.reduce((sum, { total }) => sum - minor(total, currency), 0);
    const total = minor(text, currency);
    return { currency, total, refunded: Math.min(refunded, total) };
  });
  return sumsOf(amounts);
}

/** Orders in which each tenth has one of the cases. Four orders have one email, and every second person an account. */
function makeShop(): WooOrder[] {
  return cleanOrders(COUNT).map((order, index) => {
    const customer = Math.floor(index / 4);
    const email = index % 10 === 9 ? "" : `customer${customer}@shop.example`;
    const phone = index % 20 === 9 ? `+49 30 ${1_000_000 + (customer % 50)}` : "";
    const customer_id = customer % 2 === 0 && email !== "" ? 1 + customer : 0;
    const status = index % 10 === 3 ? "cancelled" : order.status;
    return { ...order, customer_id, status, billing: { ...order.billing, email, phone } };
  });
}

/** A product has another name, an order was completed, revived, or refunded by more than its total; and new ones. */
function changeShop(orders: readonly WooOrder[], run: number): WooOrder[] {
  const changed = orders.map((order, index): WooOrder => {
    const { status, line_items, currency, total } = order;
    const refund = (-1.1 * Number(total)).toFixed(decimals[currency] ?? 2);
    const cases: Readonly<Record<number, Partial<WooOrder>>> = {
      1: {
        line_items: line_items.map((line) => ({ ...line, name: `New ${line.name}`, sku: "new" })),
      },
      2: { status: status === "processing" ? "completed" : status },
      3: { status: status === "cancelled" ? "processing" : status },
      4: { refunds: [{ id: 1, reason: "", total: refund }] },
    };
    return { ...order, ...cases[(index + run) % 10] };
  });
  const added = orders.slice(0, COUNT / 20).map((order, index) => {
    const id = 1_000_000 * run + index;
    return { ...order, id, number: `${id}` };
  });
  return [...changed, ...added];
}

const shops = { woocommerce: JSON.stringify, shopify: shopifyCsv };
const cluster = await findCluster(false);
const runs = [
  ["woocommerce", "SQLite"],
  ["shopify", "SQLite"],
  ...(cluster === null ? [] : [["woocommerce", "PostgreSQL"] as const]),
] as const;

// One after the other: each has all orders in memory.
test.skipIf(binary === "").each(runs)(
  "move-in of a shop of %s matches to the cent after three runs on %s, and duplicates and reverts nothing",
  async (shop, database) => {
    using directory = makeDirectory();
    const isPostgres = database === "PostgreSQL" && cluster !== null;
    const url = isPostgres ? await cluster.createDatabase() : directory.at("shop.db");
    const run = (...args: string[]) =>
      startProgram([binary, ...args], { env: { DATABASE_URL: url } });
    async function move(orders: readonly WooOrder[]) {
      writeFileSync(directory.at("orders"), shops[shop](orders));
      const started = performance.now();
      const running = run("move-in", shop, directory.at("orders"));
      using memory = watchPeakMemory(running.pid);
      const outcome = await running.ended;
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      if (isLong)
        Bun.stderr.write(`${shop}, ${database}: ${seconds} s, ${memory.bytes() >> 20} MB\n`);
      expect(memory.bytes()).toBeLessThan(MAX_BYTES);
      return outcome;
    }
    async function all() {
      const [users, orders] = ["users", "orders"].map((table) => run("export", table).ended);
      const text = [(await users)?.stdout ?? "", (await orders)?.stdout ?? ""] as const;
      const rows = Bun.JSONL.parse(text[1]) as Order[];
      const ids = new Set((Bun.JSONL.parse(text[0]) as User[]).map(({ id }) => id));
      const counted = rows.filter(({ reference }) => reference !== null);
      return { ids, orders: rows, counted, hash: Bun.hash(text.join("")) };
    }

    let orders = makeShop();
    expect((await move(orders)).code).toBe(0);
    const first = await all();
    expect([sumsOf(first.counted), first.orders.length]).toEqual([expectedOf(orders), COUNT]);
    const times = first.orders.map(({ created_at }) => created_at);
    expect(times).toEqual(times.toSorted());
    // Here, a user is erased, another is merged into a third one, and one gets another email.
    const userOf = (at: number) => first.orders[at]?.user_id ?? 0;
    const [erased, merged, kept, renamed] = [userOf(1), userOf(21), userOf(25), userOf(45)];
    await run("person", "erase", `${erased}`).ended;
    await withStore(url, async ({ users, orders }) => {
      for (const { id, user_id } of first.orders)
        if (user_id === merged)
          await orders.update(id, (it) => patchOrder(it, { user_id: kept }), null);
      await users.remove(merged, null);
      await users.update(renamed, (it) => patchUser(it, { email: "renamed@here.example" }), null);
    });

    for (const run of [1, 2]) {
      orders = changeShop(orders, run);
      const { code, stdout, stderr } = await move(orders);
      expect([code, stdout.match(/^.* here$/gm)?.slice(1) ?? []]).toEqual([0, []]);
      expect(stderr).toMatch(/ [1-9]\d* erased, 0 rejected/);
      const { ids, counted } = await all();
      const [gone, left] = [true, false].map((is) =>
        counted.filter(({ user_id }) => (user_id === erased) === is),
      );
      const numbers = new Set(gone?.map(({ reference }) => reference?.replace("#", "")));
      const others = orders.filter(({ number }) => !numbers.has(number));
      expect(sumsOf(left ?? [])).toEqual(expectedOf(others));
      const references = new Set(counted.map(({ reference }) => reference));
      expect([counted.length, references.size]).toEqual([orders.length, orders.length]);
      expect(ids.has(merged)).toBe(false);
      expect(ids.size).toBeLessThan(first.ids.size + COUNT / 20);
    }
    const before = await all();
    expect((await move(orders)).stderr).toMatch(/Moved in 0 orders \(0 updated, .* 0 rejected/);
    expect((await all()).hash).toBe(before.hash);
  },
  600_000,
);
