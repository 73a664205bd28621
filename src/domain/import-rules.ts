/** The rules of an import for users and for orders: what it accepts, and by what it recognizes a record. */
import { type Static, Type } from "@sinclair/typebox";
import { emailKey } from "../base/email.ts";
import { failField } from "../base/error.ts";
import { hasMember } from "../base/json.ts";
import { Id, noExtraFields, Text, Time } from "../base/schema.ts";
import { createValidator } from "../base/validator.ts";
import type { ImportedTable } from "./import-plan.ts";
import { Order, type OrderFields, OrderInput, OrderStatus, orderFields } from "./order.ts";
import { firstVersion } from "./record.ts";
import { withUtcTimes } from "./time.ts";
import { Email, User, type UserFields, UserInput, userFields } from "./user.ts";

/** Of an imported record. It leaves more changes than a client can make before 2^53. */
const version = Type.Integer({ minimum: 1, maximum: 2 ** 52 });

/** When a record without an id was created and changed, according to another system. */
const times = { created_at: Type.Optional(Time), updated_at: Type.Optional(Time) };
type Times = Partial<Pick<User, keyof typeof times>>;

/** @throws {AppError} validation_failed */
function requireTimesInOrder({ created_at, updated_at }: Times): void {
  if (updated_at === undefined) return;
  if (created_at === undefined) failField("created_at", "required", "is required with updated_at");
  if (updated_at < created_at) failField("updated_at", "range", "must not be before created_at");
}

const ExportedUser = Type.Object({ ...User.properties, version }, noExtraFields);
const NewUser = Type.Object({ ...UserInput.properties, ...times }, noExtraFields);

/** An imported user: a full record as exported, or the fields of a POST with times. */
export type UserImport = User | (UserFields & Times);

/** @returns a parser of one import record, validated like a request body. It throws {AppError} validation_failed */
export function createUserParser(): (value: unknown) => UserImport {
  const parseExported = createValidator(ExportedUser);
  const parseNew = createValidator(NewUser, User);
  return (record) => {
    const value = withUtcTimes(record);
    const user = hasMember(value, "id") ? parseExported(value) : parseNew(value);
    requireTimesInOrder(user);
    return { ...user, ...userFields(user) };
  };
}

/** Users are recognized by their email. */
export const userImport: ImportedTable<User, UserImport> = {
  table: "users",
  schema: User,
  created: "user.created",
  noun: "user",
  complete(record, id, time) {
    if ("id" in record) return record;
    const { created_at = time, updated_at = created_at } = record;
    const { email, name, metadata } = record;
    return { ...firstVersion(id, { email, name, metadata }, created_at), updated_at };
  },
  keyOf: ({ email }) => emailKey(email),
  describeKeyConflict: (id) => `email is already taken by user ${id}`,
  contentOf: ({ email, name, metadata, created_at }, record) => ({
    email,
    name,
    metadata,
    ...("created_at" in record && { created_at }),
  }),
  userOf: () => null,
  inserts: [
    {
      table: "users",
      toRow: ({ row, key }) => ({ ...row, email_key: key, metadata: JSON.stringify(row.metadata) }),
    },
  ],
};

/** Visible ASCII, like an idempotency key. */
const IMPORT_KEY = /^[\x21-\x7e]{1,255}$/;
const ImportKey = Text({ minLength: 1, maxLength: 255 });

/** What names the user of an order: one of both. A user with the email must exist when the order is stored. */
const user = { user_id: Type.Optional(Id), user_email: Type.Optional(Email) };
type OrderUser = { readonly [Field in keyof typeof user]?: Static<(typeof user)[Field]> };

const ExportedOrder = Type.Object({ ...Order.properties, ...user, version }, noExtraFields);
/** What an order without an id can have besides the fields of a POST: it may be part of a shop's history. */
const NewOrder = Type.Object(
  {
    ...OrderInput.properties,
    ...user,
    status: Type.Optional(OrderStatus),
    ...times,
    import_key: Type.Optional(ImportKey),
  },
  noExtraFields,
);

/** Every field that an imported order can have. */
export const importedOrder = Type.Object(
  { ...Order.properties, user_email: Email, import_key: ImportKey },
  noExtraFields,
);

/** An order without an id. It has no identity of its own, so the import key makes a repeated import idempotent. */
type KeyedOrder = Omit<OrderFields, "user_id"> &
  OrderUser & { readonly import_key: string } & Partial<Pick<Order, "status">> &
  Times;

/** An imported order: a full record as exported, or a new one. */
export type OrderImport = (Omit<Order, "user_id"> & OrderUser) | KeyedOrder;

/**
 * @returns a parser of one import record, validated like a request body. The import key is used if the order
 * has neither an id nor a key of its own; `null` if the import has no key. It throws {AppError} validation_failed
 */
export function createOrderParser(): (value: unknown, importKey: string | null) => OrderImport {
  const parseExported = createValidator(ExportedOrder);
  const parseNew = createValidator(NewOrder, Order);

  return (record, importKey) => {
    const value = withUtcTimes(record);
    const order = hasMember(value, "id") ? parseExported(value) : parseNew(value);
    requireTimesInOrder(order);
    if (order.user_id === undefined) {
      if (order.user_email === undefined) failField("user_id", "required", "is required");
    } else if (order.user_email !== undefined) {
      failField("user_email", "not_allowed", "is not allowed with user_id");
    }
    const fields = orderFields(order);
    if ("id" in order) {
      if (order.total === fields.total) return order;
      failField("total", "range", `must be ${fields.total}, the sum of the items`);
    }
    const { import_key = importKey } = order;
    if (import_key === null)
      failField("id", "required", "is required, unless --key names the import");
    if (!IMPORT_KEY.test(import_key)) {
      failField("import_key", "format", "must be 1 to 255 visible ASCII characters");
    }
    return { ...fields, import_key };
  };
}

/** Orders without ids are recognized by their import key. */
export const orderImport: ImportedTable<Order, OrderImport> = {
  table: "orders",
  schema: Order,
  created: "order.created",
  noun: "order",
  complete({ user_email: _, ...record }, id, time, userId) {
    if ("id" in record) return { ...record, user_id: Number(userId) };
    const { currency, items, total, status = "pending", metadata } = record;
    const { created_at = time, updated_at = created_at } = record;
    const fields = { user_id: Number(userId), currency, items, total, status, metadata };
    return { ...firstVersion(id, fields, created_at), updated_at };
  },
  keyOf: (record) => ("id" in record ? null : record.import_key),
  describeKeyConflict: (id, key) =>
    `import_key ${key} was imported before with different content, as order ${id}`,
  // The fields that never change: status and metadata may have changed since the import. A record without a time of its
  // own has that of the import.
  contentOf: ({ user_id, currency, items, created_at }, record) => ({
    user_id,
    currency,
    items,
    ...("created_at" in record && { created_at }),
  }),
  userOf: ({ user_id, user_email = "" }) => user_id ?? emailKey(user_email),
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
