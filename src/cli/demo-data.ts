/** Plausible users and orders. The same counts always give the same records. */
import { type Order, type OrderStatus, orderFields } from "../domain/order.ts";
import { firstVersion } from "../domain/record.ts";
import type { User } from "../domain/user.ts";

export interface DemoCounts {
  readonly users: number;
  readonly orders: number;
}

const FIRST_MS = Date.UTC(2026, 0, 1);
/** Users and orders are spread over this time. */
const PERIOD_MS = 300 * 24 * 3_600_000;
/** Time between two changes of the status of an order. */
const STEP_MS = 26 * 3_600_000;
/** The fractions of its multiples are spread evenly. */
const GOLDEN_RATIO = (1 + Math.sqrt(5)) / 2;

const firstNames = "Ada Ben Chloé Dmitri Elif Femi Grace Hiro Inés Jan".split(" ");
const lastNames = "Adeyemi Brown Çelik Dubois Fischer García Ito Jensen".split(" ");
const plans = ["free", "team", "business"];
const currencies = ["EUR", "USD", "GBP"];

/** SKU, name and price. */
const products = [
  ["tea-01", "Green tea, 250 g", 1250],
  ["tea-02", "Earl Grey, 250 g", 1190],
  ["cup-01", "Cup, white", 800],
  ["pot-01", "Teapot, cast iron", 6400],
  ["box-01", "Gift box", 2990],
] as const;

/** Statuses, and how often such an order was changed. Most orders are delivered. */
const statuses: readonly (readonly [OrderStatus, changes: number])[] = [
  ["delivered", 3],
  ["pending", 0],
  ["delivered", 3],
  ["paid", 1],
  ["delivered", 3],
  ["shipped", 2],
  // When it was paid. The payment is refunded in the same change.
  ["canceled", 2],
];

/** @param values at least one. @returns one of them; successive numbers give different ones */
function pick<Value>(values: readonly Value[], number: number): Value {
  return values[Math.floor(number) % values.length] as Value;
}

function timeAt(offsetMs: number): string {
  return new Date(FIRST_MS + Math.floor(offsetMs)).toISOString();
}

/** An ASCII address without spaces. @returns e.g. `chloe.garcia.17@example.com` */
function emailOf(name: string, id: number): string {
  const ascii = name.normalize("NFD").replace(/[^\w ]/g, "");
  return `${ascii.toLowerCase().replaceAll(" ", ".")}.${id}@example.com`;
}

/** @param id from 1 */
export function demoUser(id: number, { users }: DemoCounts): User {
  const name = `${pick(firstNames, id)} ${pick(lastNames, id / firstNames.length)}`;
  const reference = `C-${1000 + id}`;
  const fields = { email: emailOf(name, id), reference, name, metadata: { plan: pick(plans, id) } };
  return firstVersion(id, fields, timeAt((PERIOD_MS * (id - 1)) / users));
}

/** @param id from 1 */
export function demoOrder(id: number, { users, orders }: DemoCounts): Order {
  const progress = (id - 1) / orders;
  // Some users order more than others. All of these users existed at that time.
  const userId = 1 + Math.floor(((id * GOLDEN_RATIO) % 1) ** 2 * users * progress);
  const items = Array.from({ length: 1 + (id % 3) }, (_, at) => {
    const [sku, name, unitPrice] = pick(products, id + at);
    return { sku, name, quantity: 1 + ((id + at) % 4), unit_price: unitPrice };
  });
  const reference = `2026-${1000 + id}`;
  const fields = orderFields({
    user_id: userId,
    currency: pick(currencies, id / 2),
    reference,
    items,
  });
  const [status, changes] = pick(statuses, id);
  const refunded = status === "canceled" ? fields.total : 0;
  return {
    ...firstVersion(id, { ...fields, refunded, status }, timeAt(PERIOD_MS * progress)),
    version: 1 + changes,
    updated_at: timeAt(PERIOD_MS * progress + changes * STEP_MS),
  };
}
