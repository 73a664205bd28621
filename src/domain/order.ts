import { type Static, Type } from "@sinclair/typebox";
import { AppError, failField } from "../base/error.ts";
import {
  Id,
  noExtraFields,
  OneOf,
  Parameter,
  SafeInteger,
  Text,
  Time,
  Version,
} from "../base/schema.ts";
import { currencies } from "./currency.ts";
import { Metadata, MetadataPatch, patchMetadata } from "./metadata.ts";
import { pageQuery } from "./page.ts";
import { requireRecordSize } from "./record.ts";
import type { RecordStore } from "./record-store.ts";

export const orderStatuses = ["pending", "paid", "shipped", "delivered", "canceled"] as const;
export type OrderStatus = (typeof orderStatuses)[number];
export const OrderStatus = OneOf(orderStatuses, { title: "OrderStatus" });

/** Allowed changes of the status. */
const transitions: Record<OrderStatus, readonly OrderStatus[]> = {
  pending: ["paid", "canceled"],
  paid: ["shipped", "canceled"],
  shipped: ["delivered"],
  delivered: [],
  canceled: [],
};

/** Money is an integer in the minor unit of the currency (ISO 4217 exponent). */
const OrderItem = Type.Object(
  {
    sku: Text({ minLength: 1, maxLength: 64 }),
    name: Type.Optional(Text({ minLength: 1, maxLength: 200 })),
    quantity: Type.Integer({ minimum: 1, maximum: 1_000_000 }),
    unit_price: SafeInteger(
      Number.MIN_SAFE_INTEGER,
      "In the minor unit of the currency: 1999 is 19.99 EUR. Negative for a discount",
    ),
  },
  { ...noExtraFields, title: "OrderItem" },
);

const currency = OneOf(currencies, {
  title: "Currency",
  description: "an ISO 4217 code in upper case",
});
const items = Type.Array(OrderItem, { minItems: 1, maxItems: 500 });

export const Order = Type.Object(
  {
    id: Id,
    user_id: Id,
    currency,
    items,
    total: SafeInteger(0, "Σ quantity × unit_price, in the minor unit of the currency"),
    status: OrderStatus,
    metadata: Metadata,
    version: Version,
    created_at: Time,
    updated_at: Time,
  },
  { ...noExtraFields, title: "Order" },
);
export type Order = Static<typeof Order>;

/** Body of POST. */
export const OrderInput = Type.Object(
  { user_id: Id, currency, items, metadata: Type.Optional(Metadata) },
  { ...noExtraFields, title: "OrderInput" },
);
export type OrderInput = Static<typeof OrderInput>;

/** Body of PATCH: a JSON Merge Patch (RFC 7396). */
export const OrderPatch = Type.Object(
  { status: Type.Optional(OrderStatus), metadata: Type.Optional(MetadataPatch) },
  { ...noExtraFields, title: "OrderPatch" },
);
export type OrderPatch = Static<typeof OrderPatch>;

export const OrderQuery = Type.Object(
  {
    ...pageQuery,
    user_id: Parameter(Id, "Only orders of this user"),
    status: Parameter(OrderStatus, "Only orders with this status"),
  },
  noExtraFields,
);
export type OrderQuery = Static<typeof OrderQuery>;

/** The fields that are set when an order is placed. */
export type OrderFields = Omit<Order, "id" | "status" | "version" | "created_at" | "updated_at">;
/** The fields of an order that can change afterwards. */
export type OrderEdit = Pick<Order, "status" | "metadata">;

/** @throws {AppError} validation_failed if the total is not from 0 to 2^53 − 1 */
function totalOf(items: OrderInput["items"]): number {
  // A double cannot hold the maximum, 500 × 10^6 × (2^53 − 1).
  let total = 0n;
  for (const { quantity, unit_price } of items) {
    total += BigInt(quantity) * BigInt(unit_price);
  }
  const range = { min: 0, max: Number.MAX_SAFE_INTEGER };
  if (total > range.max) failField("items", "range", `must add up to at most ${range.max}`, range);
  if (total < range.min) failField("items", "range", `must add up to at least ${range.min}`, range);
  return Number(total);
}

/**
 * In any status, of any user.
 * @throws {AppError} validation_failed if the order is too large
 */
function requireOrderSize({
  currency,
  items,
  metadata,
}: Pick<Order, "currency" | "items" | "metadata">): void {
  const largest = Number.MAX_SAFE_INTEGER;
  const status: OrderStatus = "delivered";
  requireRecordSize({ user_id: largest, currency, items, total: largest, status, metadata });
}

/**
 * Adds the total, and the default of each field that is missing.
 * @throws {AppError} validation_failed as `totalOf` and `requireOrderSize`
 */
export function orderFields<Input extends Omit<OrderInput, "user_id">>(input: Input) {
  const fields = { ...input, total: totalOf(input.items), metadata: input.metadata ?? {} };
  requireOrderSize(fields);
  return fields;
}

/** @throws {AppError} validation_failed: the user of an order does not exist */
export function failUnknownUser(): never {
  failField("user_id", "reference", "must be an existing user");
}

/** @returns the values of the columns of a new order, apart from the id, the version and the times */
export function orderRow({ items, metadata, ...fields }: OrderFields) {
  return {
    ...fields,
    items: JSON.stringify(items),
    status: "pending" as const,
    metadata: JSON.stringify(metadata),
  };
}

export type OrderRow = ReturnType<typeof orderRow>;

/**
 * @returns the changed fields
 * @throws {AppError} invalid_status_change if the status cannot change like this
 * @throws {AppError} validation_failed if the patched metadata has too many keys, or the order is too large
 */
export function patchOrder(order: Order, patch: OrderPatch): OrderEdit {
  // An invalid request is reported before a conflict with the state of the order.
  const metadata = patchMetadata(order.metadata, patch.metadata);
  if (patch.metadata !== undefined) requireOrderSize({ ...order, metadata });
  const allowed = transitions[order.status];
  const { status = order.status } = patch;
  // A client repeats a request if it has lost the response: setting the current status again is not a status change.
  if (status !== order.status && !allowed.includes(status)) {
    const change = `cannot change status from ${order.status} to ${status}`;
    const steps = allowed.join(", ") || "none";
    throw new AppError("invalid_status_change", `${change}; allowed: ${steps}`, { allowed });
  }
  return { status, metadata };
}

export type OrderStore = RecordStore<Order, OrderQuery, OrderEdit, OrderFields>;
