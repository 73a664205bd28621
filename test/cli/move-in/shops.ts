/** Orders as the two shops export them, and what is here after a move. */
import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import type { Order } from "../../../src/domain/order.ts";
import type { User } from "../../../src/domain/user.ts";
import { exportOf, type Harness } from "../harness.ts";

export type Fields = Readonly<Record<string, unknown>>;

/** @see https://woocommerce.github.io/woocommerce-rest-api-docs/#order-properties */
export function wooOrder(id: number, fields: Fields = {}): Fields {
  const { email = `guest${id}@people.example`, phone = "", total = "10.00", ...others } = fields;
  const { last_name = "Lee", ...rest } = others;
  return {
    ...{ id, number: `${id}`, status: "processing", currency: "EUR", customer_id: 0, total },
    date_created_gmt: new Date(Date.UTC(2026, 0, 1, 0, id)).toISOString().slice(0, 19),
    billing: { first_name: "Ann", last_name, email, phone },
    line_items: [wooLine({ total })],
    ...rest,
  };
}

export function wooLine(fields: Fields = {}): Fields {
  const [product_id, quantity] = [9, 1];
  return { name: "Tea", product_id, sku: "tea", quantity, total: "10.00", ...fields };
}

type Row = Readonly<Record<string, string>>;

/** The first row of an order, as Shopify writes it. */
export function shopifyRow(number: number, fields: Row = {}): Row {
  const price = fields["Total"] ?? "10.00";
  return {
    ...{ Name: `#${number}`, Email: `guest${number}@people.example`, "Financial Status": "paid" },
    ...{ "Fulfillment Status": "unfulfilled", Currency: "EUR", Subtotal: price, Total: price },
    "Created at": `2026-01-01 10:${String(number % 60).padStart(2, "0")}:00 +0100`,
    ...{ "Lineitem quantity": "1", "Lineitem name": "Tea", "Lineitem price": price },
    ...{ "Lineitem sku": "tea", "Billing Name": "Ann Lee", "Billing Phone": "" },
    ...{ "Cancelled at": "", "Refunded Amount": "0.00", Id: `${5_000_000_000_000 + number}` },
    ...fields,
  };
}

/** A further row, which has an item only. */
export function shopifyItem(number: number, name: string, price: string, quantity = "1"): Row {
  const cells = { "Lineitem quantity": quantity, "Lineitem name": name, "Lineitem price": price };
  return { Name: `#${number}`, ...cells };
}

export function csv(rows: readonly Row[], delimiter = ","): string {
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const quote = (cell: string) =>
    /[",;\t\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
  const cells = [columns, ...rows.map((row) => columns.map((column) => row[column] ?? ""))];
  return cells.map((line) => `${line.map(quote).join(delimiter)}\n`).join("");
}

export const ndjson = (orders: readonly Fields[]): string =>
  orders.map((order) => `${JSON.stringify(order)}\n`).join("");

/** Moves the files in, in the order of their names. */
export function moveIn(
  world: Harness,
  shop: "woocommerce" | "shopify",
  files: Readonly<Record<string, string | Uint8Array>>,
  ...args: string[]
) {
  for (const [name, text] of Object.entries(files)) writeFileSync(world.at(name), text);
  return world.run("move-in", shop, ...Object.keys(files).map(world.at), ...args);
}

/** @returns the path of a file with these rules */
export function rulesFile(world: Harness, rules: Fields): string {
  writeFileSync(world.at("rules.json"), JSON.stringify(rules));
  return world.at("rules.json");
}

/** The outcome of a move that fails with this message. */
export function failure(message: string) {
  return { code: 1, stderr: expect.stringContaining(message) };
}

/** @returns what is here, with whose each order is, by its reference */
export async function recordsOf(world: Harness) {
  const users: User[] = await exportOf(world, "users");
  const orders: Order[] = await exportOf(world, "orders");
  const emailOf = (id: number) => users.find((user) => user.id === id)?.email;
  const owners = orders.map(({ reference, user_id }) => [reference, emailOf(user_id)]);
  return { users, orders, owners: Object.fromEntries(owners) };
}
