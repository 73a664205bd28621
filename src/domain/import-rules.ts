/** The rules of an import for users and for orders: what it accepts, and by what it recognizes a record. */
import { type Static, Type } from "@sinclair/typebox";
import { emailKey } from "../base/email.ts";
import { failField } from "../base/error.ts";
import { hasMember } from "../base/json.ts";
import { Closed, Id, type Schema, Time } from "../base/schema.ts";
import { createValidator } from "../base/validator.ts";
import type { ChangeType } from "./change.ts";
import type { CopyRow } from "./copy.ts";
import {
  Order,
  OrderInput,
  OrderStatus,
  orderFields,
  orderRow,
  refunded,
  requireAllowedChange,
} from "./order.ts";
import { firstVersion, type RecordTable, Reference, ReferenceText } from "./record.ts";
import { withUtcTimes } from "./time.ts";
import { Email, isErasedEmail, User, UserInput, userFields, userRow } from "./user.ts";

/** Of an imported record. It leaves more changes than a client can make before 2^53. */
const version = Type.Integer({ minimum: 1, maximum: 2 ** 52 });

const times = { created_at: Type.Optional(Time), updated_at: Type.Optional(Time) };

function requireTimesInOrder({ created_at, updated_at }: Partial<User>): void {
  if (updated_at === undefined) return;
  if (created_at === undefined) failField("created_at", "required", "is required with updated_at");
  if (updated_at < created_at) failField("updated_at", "range", "must not be before created_at");
}

/** What spreadsheets write for a number of more than 11 digits. The others of its digits are lost. */
export const ROUNDED_NUMBER: RegExp = /^\d(?:[.,]\d+)?E\+\d\d$/;

function requireExactReferences(record: object): void {
  for (const field of ["reference", "user_reference"]) {
    const value = hasMember(record, field) ? record[field] : null;
    if (typeof value === "string" && ROUNDED_NUMBER.test(value))
      failField(field, "format", `is a number that a spreadsheet has rounded, ${value}`);
  }
}

/** Older exports have no references. */
const reference = Type.Optional(Reference);
const ExportedUser = Closed({ ...User.properties, reference, version });
const NewUser = Closed({ ...UserInput.properties, ...times });

export type UserImport = Static<typeof ExportedUser> | Static<typeof NewUser>;

/** @returns a parser of one import record, validated like a request body. It throws {AppError} validation_failed */
export function createUserParser(): (value: unknown) => UserImport {
  const parseExported = createValidator(ExportedUser);
  const parseNew = createValidator(NewUser, User);
  return (record) => {
    const value = withUtcTimes(record);
    const user = hasMember(value, "id") ? parseExported(value) : parseNew(value);
    if (!hasMember(value, "id")) requireExactReferences(user);
    requireTimesInOrder(user);
    userFields(user);
    return user;
  };
}

/** A value that is unique in addition to the ids. Emails are compared by their keys. */
export type UniqueKey = readonly [field: "reference" | "email", key: string];

export interface ImportedRow {
  readonly id: number;
  readonly reference: string | null;
  readonly version: number;
  readonly updated_at: string;
}

export interface ImportRules<Row, Import> {
  readonly table: RecordTable;
  readonly schema: Schema;
  readonly created: ChangeType;
  toRow(row: Row): CopyRow;
  readonly noun: string;
  /** @returns the user that must exist: an id, or a key; `null` for none */
  namedUserOf(record: Import): number | UniqueKey | null;
  /** @returns the unique values, in the order in which they recognize a record without an id */
  keysOf(record: Row | Import): readonly UniqueKey[];
  /** @returns the whole record. The id and the time are for a record without an id. @param userId of the user that it names */
  complete(record: Import, id: number, time: string, userId: number | null): Row;
  /** @returns the fields that must be equal for a record without an id to be the one that has its key */
  contentOf(row: Row, record: Import): object;
  /** Takes the fields that the imported record has. @throws {AppError} if they cannot change like this */
  merge(stored: Row, record: Import, userId: number | null): Row;
  /** @returns the record with the items that are stored, if their quantities and prices are the same */
  keepItems(stored: Row, record: Import): Import;
  /** Whether the user, or the one of the order, was erased. Then no import updates the record. */
  isErased(row: Row, emailOf: StoredRecords<Row>["emailOf"]): boolean;
}

export interface StoredRecords<Row> {
  /** The last assigned id; 0 if there is none. */
  readonly lastId: number;
  get(id: number): Row | null;
  idOf(key: UniqueKey): number | null;
  emailOf(userId: number): string | null;
  userIdOf(key: UniqueKey): number | null;
}

function referenceKey(reference: string | null | undefined): UniqueKey[] {
  return reference == null ? [] : [["reference", reference]];
}

export const userImport: ImportRules<User, UserImport> = {
  table: "users",
  schema: User,
  created: "user.created",
  toRow: (user) => ({ ...user, ...userRow(user) }),
  noun: "user",
  namedUserOf: () => null,
  keysOf: ({ reference, email }) => [...referenceKey(reference), ["email", emailKey(email)]],
  complete(record, id, time) {
    if ("id" in record) return { reference: null, ...record };
    const { created_at = time, updated_at = created_at } = record;
    return { ...firstVersion(id, userFields(record), created_at), updated_at };
  },
  contentOf: ({ email, reference, name, metadata, created_at }, record) => ({
    email,
    name,
    metadata,
    ...(record.reference !== undefined && { reference }),
    ...(record.created_at !== undefined && { created_at }),
  }),
  merge: (stored, record) => ({ ...stored, ...userFields({ ...stored, ...record }) }),
  keepItems: (_, user) => user,
  isErased: ({ email }) => isErasedEmail(email),
};

/** What names the user of an order: one of these. The user must exist when the order is stored. */
const user = {
  user_id: Type.Optional(Id),
  user_email: Type.Optional(Email),
  user_reference: Type.Optional(ReferenceText),
};

export const ExportedOrder = Closed({
  ...Order.properties,
  ...user,
  reference,
  refunded: Type.Optional(refunded),
  version,
});
/** What an order without an id can have in addition to the fields of a POST: it may be part of a shop's history. */
const NewOrder = Closed({
  ...OrderInput.properties,
  ...user,
  refunded: Type.Optional(refunded),
  status: Type.Optional(OrderStatus),
  ...times,
});

/** An imported order: a full record as exported, or a new one, which its reference makes safe to repeat. */
export type OrderImport =
  | Static<typeof ExportedOrder>
  | (Static<typeof NewOrder> & Pick<Order, "total"> & { readonly reference: string });

function validFields(order: Omit<OrderImport, "total" | "reference"> & Partial<Order>) {
  requireTimesInOrder(order);
  const [first, second] = Object.keys(user).filter((name) => Object.hasOwn(order, name));
  if (first === undefined) failField("user_id", "required", "is required");
  if (second !== undefined) failField(second, "not_allowed", `is not allowed with ${first}`);
  // A user that is named by a key is looked up later. The id is not part of what is checked.
  const fields = orderFields({ user_id: 0, ...order });
  const range = { min: 0, max: fields.total };
  if ((order.refunded ?? 0) > range.max)
    failField("refunded", "range", `must be at most ${range.max}, the total`, range);
  return fields;
}

export function createOrderParser(): (value: unknown) => OrderImport {
  const parseExported = createValidator(ExportedOrder);
  const parseNew = createValidator(NewOrder, Order);

  return (record) => {
    const value = withUtcTimes(record);
    if (hasMember(value, "id")) {
      const order = parseExported(value);
      const { total } = validFields(order);
      if (order.total === total) return order;
      return failField("total", "range", `must be ${total}, the sum of the items`);
    }
    const order = parseNew(value);
    requireExactReferences(order);
    const { total, reference } = validFields(order);
    if (reference === null)
      return failField("reference", "required", "is required, unless the order has an id");
    return { ...order, total, reference };
  };
}

function amountsOf(items: Order["items"]): string {
  const amounts = items.map(({ quantity, unit_price }) => `${quantity} ${unit_price}`);
  return amounts.sort().join();
}

export const orderImport: ImportRules<Order, OrderImport> = {
  table: "orders",
  schema: Order,
  created: "order.created",
  toRow: orderRow,
  noun: "order",
  namedUserOf: ({ user_id, user_email, user_reference = "" }) => {
    if (user_id !== undefined) return user_id;
    return user_email === undefined
      ? ["reference", user_reference]
      : ["email", emailKey(user_email)];
  },
  keysOf: ({ reference }) => referenceKey(reference),
  complete({ user_email: _, user_reference: __, ...record }, id, time, userId) {
    const order = { reference: null, refunded: 0, ...record, user_id: Number(userId) };
    if ("id" in order) return order;
    const { created_at = time, updated_at = created_at } = order;
    const fields = { status: "pending" as const, metadata: {}, ...order };
    return { ...firstVersion(id, fields, created_at), updated_at };
  },
  // The fields that never change: the others may have changed since the import. A record without a creation time has
  // that of the import.
  contentOf: ({ currency, items, created_at }, record) => ({
    currency,
    items,
    ...(record.created_at !== undefined && { created_at }),
  }),
  merge(stored, record, userId) {
    const { reference, refunded, status, metadata } = { ...stored, ...record };
    const changed = { ...stored, user_id: Number(userId), reference, refunded, status, metadata };
    const { created_at = stored.created_at, currency, items } = record;
    requireAllowedChange(stored, { ...changed, created_at, currency, items });
    return changed;
  },
  keepItems({ items }, order) {
    return amountsOf(items) === amountsOf(order.items) ? { ...order, items } : order;
  },
  isErased: ({ user_id }, emailOf) => isErasedEmail(emailOf(user_id) ?? ""),
};
