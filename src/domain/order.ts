import { type Static, Type } from "@sinclair/typebox";
import { AppError, failField } from "../base/error.ts";
import { Amount, Closed, Id, Named, OneOf, Parameter, Text, Time } from "../base/schema.ts";
import { currencies } from "./currency.ts";
import { Metadata, MetadataPatch, patchMetadata } from "./metadata.ts";
import { pageQuery, recordFilters } from "./page.ts";
import { longestFields, Reference, recordFields, requireRecordSize } from "./record.ts";
import type { RecordStore } from "./record-store.ts";

export const orderStatuses = ["pending", "paid", "shipped", "delivered", "canceled"] as const;
export type OrderStatus = (typeof orderStatuses)[number];
export const OrderStatus = OneOf(orderStatuses, { title: "OrderStatus" });

const transitions: Record<OrderStatus, readonly OrderStatus[]> = {
  pending: ["paid", "canceled"],
  paid: ["shipped", "canceled"],
  shipped: ["delivered"],
  delivered: [],
  canceled: [],
};

/** Money is an integer in the minor unit of the currency (ISO 4217 exponent). */
const OrderItem = Named("OrderItem", {
  sku: Text({ minLength: 1, maxLength: 64 }),
  name: Type.Optional(Text({ minLength: 1, maxLength: 200 })),
  quantity: Type.Integer({ minimum: 1, maximum: 1_000_000 }),
  unit_price: Amount(
    Number.MIN_SAFE_INTEGER,
    "In the minor unit of the currency: 1999 is 19.99 EUR. Negative for a discount",
  ),
});

const currency = OneOf(currencies, {
  title: "Currency",
  description: "an ISO 4217 code in upper case",
});
const refundedText = "Of the total, in the minor unit of the currency. Never decreases";
export const refunded = Amount(0, refundedText);
const items = Type.Array(OrderItem, { minItems: 1, maxItems: 500 });

export const Order = Named("Order", {
  id: Id,
  user_id: Id,
  currency,
  reference: Reference,
  items,
  total: Amount(0, "Σ quantity × unit_price, in the minor unit of the currency"),
  refunded,
  status: OrderStatus,
  metadata: Metadata,
  ...recordFields,
});
export type Order = Static<typeof Order>;

export const OrderInput = Named("OrderInput", {
  user_id: Id,
  currency,
  reference: Type.Optional(Reference),
  items,
  metadata: Type.Optional(Metadata),
});
export type OrderInput = Static<typeof OrderInput>;

/** Body of PATCH: a JSON Merge Patch (RFC 7396). */
export const OrderPatch = Named("OrderPatch", {
  ...Type.Partial(Type.Pick(Order, ["user_id", "reference", "refunded", "status"])).properties,
  metadata: Type.Optional(MetadataPatch),
});
export type OrderPatch = Static<typeof OrderPatch>;

export const OrderQuery = Closed({
  ...pageQuery,
  ...recordFilters,
  user_id: Parameter(Id, "Only orders of this user"),
  status: Parameter(
    Type.Array(OrderStatus, { minItems: 1, maxItems: orderStatuses.length }),
    "Only orders in one of these statuses",
  ),
  created_from: Parameter(Time, "Only orders that were created at this time or later"),
  created_to: Parameter(Time, "Only orders that were created before this time"),
});
export type OrderQuery = Static<typeof OrderQuery>;

type WrittenFields = Omit<Order, "id" | "version" | "created_at" | "updated_at">;
export type OrderFields = WrittenFields & { readonly refunded: 0; readonly status: "pending" };
export type OrderEdit = Pick<Order, "user_id" | "reference" | "refunded" | "status" | "metadata">;

function totalOf(items: OrderInput["items"]): number {
  const range = { min: 0, max: Number.MAX_SAFE_INTEGER };
  let total: number | bigint = 0;
  let size = 0;
  for (const { quantity, unit_price } of items) {
    total += quantity * unit_price;
    size += quantity * Math.abs(unit_price);
  }
  // A double cannot hold the maximum, 500 × 10^6 × (2^53 − 1). Otherwise it takes less time.
  if (size > range.max)
    total = items.reduce((sum, it) => sum + BigInt(it.quantity) * BigInt(it.unit_price), 0n);
  if (total > range.max) failField("items", "range", `must add up to at most ${range.max}`, range);
  if (total < range.min) failField("items", "range", `must add up to at least ${range.min}`, range);
  return Number(total);
}

const largest = Number.MAX_SAFE_INTEGER;
const numbers = { user_id: largest, total: largest, refunded: largest };
/** In any status, of any user. */
const longestOrder = { ...longestFields, ...numbers, status: "delivered" };

/** @throws {AppError} validation_failed as `totalOf` and `requireRecordSize` */
export function orderFields(input: OrderInput): OrderFields {
  const { user_id, currency, reference = null, items, metadata = {} } = input;
  const values = { user_id, currency, reference, items, total: totalOf(items) };
  const fields: OrderFields = { ...values, refunded: 0, status: "pending", metadata };
  requireRecordSize(fields, longestOrder);
  return fields;
}

/** @throws {AppError} validation_failed: the user of an order does not exist */
export function failUnknownUser(): never {
  failField("user_id", "reference", "must be an existing user");
}

export function orderRow<Fields extends WrittenFields>(fields: Fields) {
  const { items, metadata } = fields;
  return { ...fields, items: JSON.stringify(items), metadata: JSON.stringify(metadata) };
}

export type OrderRow = ReturnType<typeof orderRow<OrderFields>>;

function requireStep(from: OrderStatus, to: OrderStatus): void {
  const allowed = transitions[from];
  // A client repeats a request if it has lost the response: setting the current status again is not a status change.
  if (to === from || allowed.includes(to)) return;
  const steps = allowed.join(", ") || "none";
  const message = `cannot change status from ${from} to ${to}; allowed: ${steps}`;
  throw new AppError("invalid_status_change", message, { allowed });
}

function requireRefund({ refunded: min, total: max }: Order, refunded: number): void {
  if (refunded >= min && refunded <= max) return;
  const message = `refunded must be from ${min}, which is refunded already, to ${max}, the total`;
  throw new AppError("invalid_refund", message, { allowed: { min, max } });
}

export function leadsTo(from: OrderStatus, to: OrderStatus): boolean {
  return transitions[from].some((next) => next === to || leadsTo(next, to));
}

/** Of an order in another system, perhaps several steps ahead. @throws {AppError} validation_failed, or as `patchOrder` */
export function requireAllowedChange(order: Order, changed: Order): void {
  // An order of another time is another order, which has the reference of this one.
  for (const field of ["created_at", "currency", "items"] as const)
    if (!Bun.deepEquals(order[field], changed[field], true))
      failField(field, "read_only", `must be as in order ${order.id}: it never changes`);
  requireRecordSize(changed, longestOrder);
  if (!leadsTo(order.status, changed.status)) requireStep(order.status, changed.status);
  requireRefund(order, changed.refunded);
}

/** @throws {AppError} validation_failed, invalid_status_change, invalid_refund */
export function patchOrder(order: Order, patch: OrderPatch): OrderEdit {
  const { user_id, reference, refunded, status } = { ...order, ...patch };
  // An invalid request is reported before a conflict with the state of the order.
  const metadata = patchMetadata(order.metadata, patch.metadata);
  if (patch.metadata !== undefined || patch.reference !== undefined)
    requireRecordSize({ ...order, reference, metadata }, longestOrder);
  requireStep(order.status, status);
  requireRefund(order, refunded);
  return { user_id, reference, refunded, status, metadata };
}

export type OrderStore = RecordStore<Order, OrderQuery, OrderEdit, OrderFields>;
