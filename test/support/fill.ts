/** Fills an empty database with users and orders. */
import { chmodSync, existsSync } from "node:fs";
import { orderFields } from "../../src/domain/order.ts";
import { firstVersion } from "../../src/domain/record.ts";
import { withStore } from "./open-store.ts";

const ITEM = { sku: "tea-01", name: "Green tea", quantity: 2, unit_price: 1250 };

/** @param databaseUrl of a database, which is created if it is missing */
export async function fillDatabase(databaseUrl: string, users: number, orders = 0): Promise<void> {
  const createdAt = new Date(Date.UTC(2026, 0, 1)).toISOString();
  const made = <Fields extends object>(count: number, fieldsOf: (id: number) => Fields) =>
    Array.from({ length: count }, (_, at) => firstVersion(at + 1, fieldsOf(at + 1), createdAt));
  const userOf = (id: number) => {
    const email = `user.${id}@example.com`;
    return { email, reference: `C-${1000 + id}`, name: "Ada Brown", metadata: { plan: "free" } };
  };
  const orderOf = (id: number) => {
    const fields = { user_id: 1 + (id % users), currency: "EUR", reference: `2026-${1000 + id}` };
    return orderFields({ ...fields, items: [ITEM] });
  };
  await withStore(databaseUrl, async ({ bulk }) => {
    await bulk.users.import(made(users, userOf));
    await bulk.orders.import(made(orders, orderOf));
  });
  // As the program creates it, with its umask.
  if (existsSync(databaseUrl)) chmodSync(databaseUrl, 0o600);
}
