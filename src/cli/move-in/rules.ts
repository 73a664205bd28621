/** What is decided for each shop: a file of JSON changes the defaults. */
import { type Static, Type } from "@sinclair/typebox";
import { emailKey } from "../../base/email.ts";
import { Closed, noExtraFields, type Schema, Text } from "../../base/schema.ts";
import { createValidator } from "../../base/validator.ts";
import { Order, OrderStatus, orderStatuses } from "../../domain/order.ts";
import { formatSettings, readSettings } from "../files/commented-json.ts";
import type { CommandSystem } from "../system/system.ts";

export const shopNames = ["woocommerce", "shopify"] as const;
export type ShopName = (typeof shopNames)[number];

const map = <Value extends Schema>(value: Value, description: string) =>
  Type.Record(Type.String(), value, { description });
const Currency = Closed({
  currency: Order.properties.currency,
  factor: Type.Integer({ minimum: 1, maximum: 1_000_000 }),
});
const text = Text({ maxLength: 254 });

const Rules = Closed({
  statuses: map(OrderStatus, `the status here for each of the shop: ${orderStatuses.join(", ")}`),
  ignored: Type.Array(text, { description: "statuses of what is no order", maxItems: 100 }),
  same: map(
    text,
    'who are one, by account or email: {"56": "55", "old@a.example": "new@a.example"}',
  ),
  currencies: map(Currency, "for those that ISO 4217 lacks: the one here, and how many are one"),
  prefix: Text({ description: 'before all references: "b-" for a second shop', maxLength: 20 }),
  time_zone: Text({ description: 'of times without one: "Europe/Berlin"; if empty, an error' }),
});
export type Rules = Static<typeof Rules>;

const common = { ignored: [], same: {}, currencies: {}, prefix: "", time_zone: "" };

const defaults: Readonly<Record<ShopName, Rules>> = {
  woocommerce: {
    ...common,
    // A refunded order that was completed is as one that is completed.
    statuses: {
      ...{ pending: "pending", "on-hold": "pending", failed: "pending", processing: "paid" },
      ...{ completed: "delivered", cancelled: "canceled", refunded: "canceled" },
    },
    ignored: ["checkout-draft", "auto-draft", "draft", "trash"],
    currencies: { IRT: { currency: "IRR", factor: 10 } },
  },
  shopify: {
    ...common,
    // The first that applies: cancelled, fulfilled, or the financial status. It does not say what was delivered.
    statuses: {
      ...{ pending: "pending", authorized: "pending", ["partially_paid"]: "pending" },
      ...{ expired: "pending", paid: "paid", ["partially_refunded"]: "paid", fulfilled: "shipped" },
      ...{ cancelled: "canceled", voided: "canceled", refunded: "canceled" },
    },
  },
};

export function printRules(system: CommandSystem, shop: ShopName): void {
  system.stdout(formatSettings(Rules.properties, defaults[shop]));
}

/** @throws {AppError} operator */
export function readRules(shop: ShopName, path: string | undefined): Rules {
  const { [shop]: rules } = defaults;
  if (path === undefined) return rules;
  return readSettings(path, (given) => {
    const others = createValidator(Type.Partial(Rules, noExtraFields))(given);
    // It throws a RangeError that names the zone.
    if (others.time_zone) new Temporal.PlainDate(2026, 1, 1).toZonedDateTime(others.time_zone);
    // Those of a shop are added to those that every shop has.
    const statuses = { ...rules.statuses, ...others.statuses };
    const currencies = { ...rules.currencies, ...others.currencies };
    const keyOf = (person: string) => (person.includes("@") ? emailKey(person) : person);
    const pairs = Object.entries(others.same ?? {});
    const same = Object.fromEntries(pairs.map(([person, other]) => [keyOf(person), other]));
    return { ...rules, ...others, statuses, currencies, same };
  });
}
