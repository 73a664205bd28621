/** Plausible users and orders. The same counts always give the same records. */
import type { Order, OrderStatus } from "../order.ts";
import type { User } from "../user.ts";

export interface DemoCounts {
  readonly users: number;
  readonly orders: number;
}

const FIRST_MS = Date.UTC(2026, 0, 1);
/** Users and orders are spread over this time. */
const PERIOD_MS = 300 * 24 * 3_600_000;
/** Time between two changes of the status of an order. */
const STEP_MS = 26 * 3_600_000;

const firstNames = "Ada Ben Chloé Dmitri Elif Femi Grace Hiro Inés Jan".split(" ");
const lastNames = "Adeyemi Brown Çelik Dubois Fischer García Ito Jensen".split(" ");
const plans = ["free", "team", "business"];

/** Currencies, with the number of minor units for a price of 1 euro. */
const currencies = [
  ["EUR", 100],
  ["USD", 110],
  ["GBP", 85],
  ["JPY", 165],
] as const;

/** SKU, name and price in euros. */
const products = [
  ["tea-01", "Green tea, 250 g", 12.5],
  ["tea-02", "Earl Grey, 250 g", 11.9],
  ["cup-01", "Cup, white", 8],
  ["cup-02", "Cup, blue", 8.5],
  ["pot-01", "Teapot, cast iron", 64],
  ["box-01", "Gift box", 29.9],
  ["ket-01", "Kettle, 1.2 l", 79],
] as const;

/** Statuses with their share of the orders, and how often such an order was changed. */
const statuses: readonly (readonly [OrderStatus, share: number, changes: number])[] = [
  ["delivered", 0.6, 3],
  ["shipped", 0.1, 2],
  ["paid", 0.12, 1],
  ["pending", 0.1, 0],
  ["canceled", 0.08, 1],
];

type Random = () => number;

/**
 * mulberry32, a small generator of pseudorandom numbers from 0 to 1.
 * @see https://github.com/cprosche/mulberry32
 */
function createRandom(seed: number): Random {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** @param values at least one */
function pick<Value>(random: Random, values: readonly Value[]): Value {
  return values[Math.floor(random() * values.length)] as Value;
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
  const random = createRandom(id);
  const name = `${pick(random, firstNames)} ${pick(random, lastNames)}`;
  const createdAt = timeAt((PERIOD_MS * (id - 1)) / users);
  return {
    id,
    email: emailOf(name, id),
    name: random() < 0.05 ? null : name,
    metadata: { plan: pick(random, plans) },
    version: 1,
    created_at: createdAt,
    updated_at: createdAt,
  };
}

function pickStatus(random: Random): (typeof statuses)[number] {
  let rest = random();
  for (const entry of statuses) {
    rest -= entry[1];
    if (rest < 0) return entry;
  }
  return ["pending", 0, 0];
}

/** @param id from 1 */
export function demoOrder(id: number, { users, orders }: DemoCounts): Order {
  const random = createRandom(-id);
  const progress = (id - 1) / orders;
  // Some users order more than others. All of these users existed at that time.
  const userId = 1 + Math.floor(random() ** 2 * users * progress);
  const [currency, rate] = pick(random, currencies);
  const items = Array.from({ length: 1 + Math.floor(random() * 3) }, () => {
    const [sku, name, price] = pick(random, products);
    const quantity = 1 + Math.floor(random() * 4);
    return { sku, name, quantity, unit_price: Math.round(price * rate) };
  });
  const [status, , changes] = pickStatus(random);
  const createdMs = PERIOD_MS * progress;
  return {
    id,
    user_id: userId,
    currency,
    items,
    total: items.reduce((sum, { quantity, unit_price }) => sum + quantity * unit_price, 0),
    status,
    metadata: random() < 0.3 ? { channel: "app" } : {},
    version: 1 + changes,
    created_at: timeAt(createdMs),
    updated_at: timeAt(createdMs + changes * STEP_MS),
  };
}
