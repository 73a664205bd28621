import { type Static, Type } from "@sinclair/typebox";
import { currencies } from "./currency.ts";
import { fail, failField } from "./error.ts";
import type { CreateResult, IdempotencyKey } from "./idempotency.ts";
import { hasId, hasMember, type ImportRules, requireImportableVersion } from "./import-plan.ts";
import { Metadata, MetadataPatch, patchMetadata } from "./metadata.ts";
import { pageQuery } from "./page.ts";
import type { Author, JsonText, RecordStore } from "./record.ts";
import { createValidator, Id, noExtraFields, OneOf, Text, Time, Version } from "./schema.ts";
import { Email, emailKey } from "./user.ts";

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
    unit_price: Type.Integer({
      minimum: 0,
      maximum: Number.MAX_SAFE_INTEGER,
      description: "In the minor unit of the currency: 1999 is 19.99 EUR",
    }),
  },
  { ...noExtraFields, title: "OrderItem" },
);

const currency = OneOf(currencies, {
  title: "Currency",
  description: "an ISO 4217 code in upper case",
});
const items = Type.Array(OrderItem, { minItems: 1, maxItems: 100 });

export const Order = Type.Object(
  {
    id: Id,
    user_id: Id,
    currency,
    items,
    total: Type.Integer({
      minimum: 0,
      maximum: Number.MAX_SAFE_INTEGER,
      description: "Σ quantity × unit_price, in the minor unit of the currency",
    }),
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
  { ...pageQuery, user_id: Type.Optional(Id), status: Type.Optional(OrderStatus) },
  noExtraFields,
);
export type OrderQuery = Static<typeof OrderQuery>;

/** The fields that are set when an order is placed. */
export type OrderFields = Omit<Order, "id" | "status" | "version" | "created_at" | "updated_at">;
/** The fields of an order that can change afterwards. */
export type OrderChange = Pick<Order, "status" | "metadata">;

/** @throws {AppError} invalid if the total exceeds 2^53 − 1 */
function totalOf(items: OrderInput["items"]): number {
  // A double cannot hold the maximum, 100 × 10^6 × (2^53 − 1).
  let total = 0n;
  for (const { quantity, unit_price } of items) {
    total += BigInt(quantity) * BigInt(unit_price);
  }
  if (total > Number.MAX_SAFE_INTEGER) {
    failField("items", `must add up to at most ${Number.MAX_SAFE_INTEGER}`);
  }
  return Number(total);
}

/**
 * Adds the total, and the default of each field that is missing.
 * @throws {AppError} invalid if the total exceeds 2^53 − 1
 */
export function orderFields<Input extends Omit<OrderInput, "user_id">>(input: Input) {
  return { ...input, total: totalOf(input.items), metadata: input.metadata ?? {} };
}

/** @throws {AppError} invalid: the user of an order does not exist */
export function failUnknownUser(): never {
  failField("user_id", "must be an existing user");
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

/** An order as stored: `items` and `metadata` are JSON text. */
export type StoredOrder = Omit<Order, "items" | "metadata"> & {
  readonly items: string;
  readonly metadata: string;
};

export function parseStoredOrder(order: StoredOrder): Order {
  return { ...order, items: JSON.parse(order.items), metadata: JSON.parse(order.metadata) };
}

/**
 * Renders an order in TypeScript. `json` in both adapters renders the same text in SQL;
 * `test/contract/record-text.ts` compares them.
 * @returns the same JSON as `JSON.stringify`, without parsing items and metadata
 */
export function orderJson(order: StoredOrder): JsonText<Order> {
  const { id, user_id, currency, items, total, status, metadata, version } = order;
  return (
    `{"id":${id},"user_id":${user_id},"currency":"${currency}","items":${items},"total":${total},` +
    `"status":"${status}","metadata":${metadata},"version":${version},` +
    `"created_at":"${order.created_at}","updated_at":"${order.updated_at}"}`
  );
}

/** @returns a new order, with items and metadata as values or as text. @param time RFC 3339 */
export function newOrder<Fields extends OrderFields | Pick<StoredOrder, keyof OrderFields>>(
  id: number,
  fields: Fields,
  time: string,
) {
  return {
    id,
    user_id: fields.user_id,
    currency: fields.currency,
    items: fields.items as Fields["items"],
    total: fields.total,
    status: "pending" as const,
    metadata: fields.metadata as Fields["metadata"],
    version: 1,
    created_at: time,
    updated_at: time,
  };
}

/** Visible ASCII, like an idempotency key. */
const IMPORT_KEY = /^[\x21-\x7e]{1,255}$/;
const ImportKey = Text({ minLength: 1, maxLength: 255 });

/** What an order without an id can have besides the fields of a POST: it may be part of a shop's history. */
const importFields = {
  ...OrderInput.properties,
  status: Type.Optional(OrderStatus),
  created_at: Type.Optional(Time),
  updated_at: Type.Optional(Time),
  import_key: Type.Optional(ImportKey),
};
/** Names the user of an order instead of `user_id`. */
const userEmail = { user_email: Email };

const ExportedOrderByEmail = Type.Object(
  { ...Type.Omit(Order, ["user_id"]).properties, ...userEmail },
  noExtraFields,
);
const NewOrder = Type.Object(importFields, noExtraFields);
const NewOrderByEmail = Type.Object(
  { ...Type.Omit(NewOrder, ["user_id"]).properties, ...userEmail },
  noExtraFields,
);

/** Every field that an imported order can have. */
export const importedOrder = Type.Object(
  { ...Order.properties, ...userEmail, import_key: ImportKey },
  noExtraFields,
);

/** The user of an imported order. A user with the email must exist when the order is stored. */
type OrderUser = Pick<Order, "user_id"> | { readonly user_email: string };

/** An order without an id. It has no identity of its own, so the import key makes a repeated import idempotent. */
type KeyedOrder = Omit<OrderFields, "user_id"> &
  OrderUser & { readonly import_key: string } & Partial<
    Pick<Order, "status" | "created_at" | "updated_at">
  >;

/** An imported order: a full record as exported, or a new one. */
export type OrderImport = (Omit<Order, "user_id"> & OrderUser) | KeyedOrder;

/** @throws {AppError} invalid */
function requireTimesInOrder({ created_at, updated_at }: Partial<Order>): void {
  if (updated_at === undefined) return;
  if (created_at === undefined) failField("created_at", "is required with updated_at");
  if (updated_at < created_at) failField("updated_at", "must not be before created_at");
}

/**
 * @returns a parser of one import record, validated like a request body. The import key is used if the order
 * has neither an id nor a key of its own; `null` if the import has no key. It throws {AppError} invalid
 */
export function createOrderParser(): (value: unknown, importKey: string | null) => OrderImport {
  const parseOrder = createValidator(Order);
  const parseOrderByEmail = createValidator(ExportedOrderByEmail);
  const parseNew = createValidator(NewOrder, Order);
  const parseNewByEmail = createValidator(NewOrderByEmail, Order);

  function parseKeyed(value: unknown, byEmail: boolean, importKey: string | null): KeyedOrder {
    const { import_key = importKey, ...order } = byEmail ? parseNewByEmail(value) : parseNew(value);
    const fields = orderFields(order);
    if (import_key === null) failField("id", "is required, unless --key names the import");
    if (!IMPORT_KEY.test(import_key)) {
      failField("import_key", "must be 1 to 255 visible ASCII characters");
    }
    requireTimesInOrder(order);
    return { ...fields, import_key };
  }

  return (value, importKey) => {
    const byEmail = hasMember(value, "user_email");
    if (byEmail && hasMember(value, "user_id")) {
      failField("user_email", "is not allowed with user_id");
    }
    if (!hasId(value)) return parseKeyed(value, byEmail, importKey);
    const order = byEmail ? parseOrderByEmail(value) : parseOrder(value);
    requireImportableVersion(order);
    const total = totalOf(order.items);
    if (order.total !== total) failField("total", `must be ${total}, the sum of the items`);
    return order;
  };
}

/** @param user_id of the user that the record names */
function newImportedOrder(record: KeyedOrder, id: number, userId: number, now: string): Order {
  const { status = "pending", created_at = now, updated_at = created_at } = record;
  return { ...newOrder(id, { ...record, user_id: userId }, created_at), status, updated_at };
}

/** Orders without ids are recognized by their import key. */
export const orderImport: ImportRules<Order, OrderImport> = {
  noun: "order",
  complete(record, id, clock, userId) {
    if (!("id" in record)) return newImportedOrder(record, id, Number(userId), clock());
    if ("user_id" in record) return record;
    const { user_email: _, ...order } = record;
    return { ...order, user_id: Number(userId) };
  },
  keyOf: (record) => ("id" in record ? null : record.import_key),
  describeKeyConflict: (id, key) =>
    `import_key ${key} was imported before with different content, as order ${id}`,
  // The fields that never change: status and metadata may have changed since the import. A record without a time of its
  // own has that of the import.
  contentOf: ({ user_id, currency, items, created_at }, record) => ({
    ...{ user_id, currency, items },
    ...("created_at" in record && { created_at }),
  }),
  userOf: (record) => ("user_id" in record ? record.user_id : emailKey(record.user_email)),
  inserts: [
    {
      table: "orders",
      toRow: ({ row }) => ({
        ...row,
        items: JSON.stringify(row.items),
        metadata: JSON.stringify(row.metadata),
      }),
    },
    {
      table: "imported_orders",
      toRow: ({ row, key }) => (key === null ? null : { import_key: key, order_id: row.id }),
    },
  ],
};

/**
 * @returns the changed fields
 * @throws {AppError} invalid_status_change if the status cannot change like this
 * @throws {AppError} invalid if the patched metadata has too many keys
 */
export function patchOrder(order: Order, patch: OrderPatch): OrderChange {
  // An invalid request is reported before a conflict with the state of the order.
  const metadata = patchMetadata(order.metadata, patch.metadata);
  const allowed = transitions[order.status];
  if (patch.status !== undefined && !allowed.includes(patch.status)) {
    const change = `cannot change status from ${order.status} to ${patch.status}`;
    fail("invalid_status_change", `${change}; allowed: ${allowed.join(", ") || "none"}`);
  }
  return { status: patch.status ?? order.status, metadata };
}

export interface OrderStore extends RecordStore<Order, OrderQuery, OrderChange> {
  /**
   * @throws {AppError} invalid if the user does not exist
   * @throws {AppError} key_reused if the key was used for another request
   */
  place(
    fields: OrderFields,
    key: IdempotencyKey | null,
    author?: Author,
  ): Promise<CreateResult<Order>>;
}
