/** Each change of a user or an order, once, in the order of commits. By consecutive ids, clients see that none is missing. */
import { type Static, Type } from "@sinclair/typebox";
import { fail } from "../base/error.ts";
import type { MaybePromise } from "../base/maybe-promise.ts";
import {
  Closed,
  Id,
  Named,
  Nullable,
  OneOf,
  Parameter,
  SafeInteger,
  Text,
  Time,
} from "../base/schema.ts";
import { Order, OrderStatus, orderStatuses } from "./order.ts";
import { type Page, type PageMemory, type PageQuery, pageQuery } from "./page.ts";
import type { Author, JsonText, RecordTable } from "./record.ts";
import type { ClientId } from "./token.ts";
import { User } from "./user.ts";

/** In the order of their codes: the first one is stored as 1. Only append. */
export const changeTypes = [
  "user.created",
  "user.updated",
  "user.deleted",
  "order.created",
  "order.updated",
] as const;
export type ChangeType = (typeof changeTypes)[number];

/** The codes up to this one are of users, and those after it of orders. Checks of SQLite's tables know it as well. */
export const LAST_OF_USERS = changeTypes.findLastIndex((type) => type.startsWith("user.")) + 1;

/** What can be written of a user or an order, in the order of the bits of `StoredChange.fields`. Only append. */
const writtenFields = [
  "email",
  "name",
  "reference",
  "metadata",
  "status",
  "refunded",
  "user_id",
] as const;

/** A change, as returned by the API. It has no personal data. */
export const Change = Named("Change", {
  id: SafeInteger(1, "1, 2, 3 … without a gap, in the order of commits"),
  type: OneOf(changeTypes, { title: "ChangeType" }),
  record_id: Id,
  version: SafeInteger(1, "Of the record after the change; of a deleted one, as it was"),
  status: Nullable(OrderStatus),
  token: Nullable(
    Text({ description: "Name of the token that made the change; null for the command line" }),
  ),
  created_at: Time,
  fields: Nullable(
    Type.Array(OneOf(writtenFields), {
      description: "The fields that an update has changed, without their values; otherwise null",
    }),
  ),
  record: Type.Optional(
    Type.Union([User, Order, Type.Null()], {
      title: "ChangedRecord",
      description:
        "With `include=record`: the user or order as it is now; null if it has been deleted",
    }),
  ),
});
export type Change = Static<typeof Change>;

export const ChangeQuery = Closed({
  limit: pageQuery.limit,
  offset: pageQuery.offset,
  after: Parameter(
    SafeInteger(0),
    "Only changes after this id; 0 is before the first one. Returns 410 if they are no longer kept. Without it, the page begins with the oldest change that is kept. Cannot be combined with `offset`",
  ),
  feed: Parameter(
    Text({ minLength: 1, maxLength: 64 }),
    "The `meta.feed` of the page before. Returns 410 if this is another sequence now",
  ),
  include: Parameter(OneOf(["record"]), "Adds to each change the user or order as it is now"),
  /** Only the API waits. */
  wait: Parameter(
    Type.Integer({ minimum: 0, maximum: 60 }),
    "If there is no change yet, the time in seconds to wait for one, by default 0",
  ),
});
export type ChangeQuery = Static<typeof ChangeQuery>;

/** What is kept of the sequence. Its name is random, of 1 to 64 letters and digits. */
export const Feed = Type.Object({
  first: SafeInteger(1, "The id of the oldest change that is kept; `last` + 1 if there is none"),
  last: SafeInteger(0, "The id of the newest change; 0 if there has never been one"),
  feed: Text({
    description: "The name of this sequence. Another one means that changes are missing",
  }),
});
export type Feed = Static<typeof Feed>;

/** Selects the changes of one record. */
export type HistoryQuery = PageQuery & { readonly table: RecordTable; readonly id: number };

/** A page of changes. `total` is the number of all changes that are kept. */
export interface ChangePage extends Page, Feed {}

/**
 * @param isBehind whether another server may have newer changes: if the client has read them, it throws unavailable
 * @throws {AppError} changes_reset if the client has read another sequence; changes_expired if its next change is not kept
 */
export function requireKept(
  { after, feed: name }: ChangeQuery,
  { feed, first, last }: Feed,
  isBehind = false,
): void {
  const advice = "synchronize again";
  if (name !== undefined && name !== feed)
    fail("changes_reset", `the feed ${name} has ended: ${advice}`);
  if (after === undefined) return;
  if (after > last && isBehind) fail("unavailable", "the server is behind another one");
  if (after > last)
    fail("changes_reset", `there is no change ${after}, the last one is ${last}: ${advice}`);
  if (after < first - 1)
    fail("changes_expired", `changes before ${first} are no longer kept: ${advice}`);
}

/** @returns the id of the change before the page; at least `last` if the page is empty */
export function startOf({ after, offset }: ChangeQuery, { first }: Pick<Feed, "first">): number {
  return after ?? first - 1 + offset;
}

export function changeCodeOf(type: ChangeType): number {
  return changeTypes.indexOf(type) + 1;
}

export type ChangedRecord = Pick<User, "id" | "version"> & Partial<Pick<Order, "status">>;

/** @returns a bit for each field that differs, the lowest for the first of `writtenFields`; 0 if none does */
export function changedFields<Fields extends object>(before: Fields, after: Fields): number {
  const isSame = (name: keyof Fields) => Bun.deepEquals(before[name], after[name], true);
  return writtenFields.reduce((bits, name, at) => bits | (isSame(name as never) ? 0 : 1 << at), 0);
}

/** @param record after the change; a deleted one, as it was. @param fields of an update, as `changedFields` returns them */
export function changeOf(type: ChangeType, record: ChangedRecord, author: Author, fields?: number) {
  const { id, version, status } = record;
  return {
    type: changeCodeOf(type),
    record_id: id,
    version,
    status: status === undefined ? null : orderStatuses.indexOf(status) + 1,
    token: author,
    fields: fields ?? null,
  };
}

/** By the same names in every database. `created_at` is in milliseconds since the Unix epoch. */
export type StoredChange = ReturnType<typeof changeOf> &
  Readonly<Record<"id" | "created_at", number>>;

/** @param record the user or order as JSON; by default, the change has none */
export function changeJson(change: StoredChange, record?: string): JsonText<Change> {
  const { id, type, record_id, version, status, token, created_at, fields } = change;
  const names = fields === null ? null : writtenFields.filter((_, at) => fields & (1 << at));
  const statusJson = status === null ? "null" : `"${orderStatuses[status - 1]}"`;
  return (
    `{"id":${id},"type":"${changeTypes[type - 1]}","record_id":${record_id},` +
    `"version":${version},"status":${statusJson},"token":${JSON.stringify(token)},` +
    `"created_at":"${new Date(created_at).toISOString()}","fields":${JSON.stringify(names)}` +
    `${record === undefined ? "" : `,"record":${record}`}}`
  );
}

/** The feed. The stores of users and orders, and imports, add each change in the transaction that makes it. */
export interface ChangeStore {
  /**
   * Returns a page by ascending `id`. Its records, its total and the state of the feed come from one snapshot.
   * Whatever `after`, `offset` and the number of changes are, it costs the same.
   * @param client as in `RecordStore.list`, and `memory`
   * @throws {AppError} as `requireKept`
   * @throws {AppError} validation_failed if the page exceeds 4 MiB, which only `include=record` can cause
   */
  list(query: ChangeQuery, client?: ClientId, memory?: PageMemory): MaybePromise<ChangePage>;
  /** Those of one record among the changes that `list` shows, as `RecordStore.list`. Other changes cost nothing. */
  listOf(query: HistoryQuery, client?: ClientId, memory?: PageMemory): MaybePromise<Page>;
  /**
   * Calls a listener each time when `list` may return changes that it has not returned before: within 100 ms of their
   * commit if this process or another one on the same machine has made them, otherwise within 1 s. It may also be called
   * without a new change, and never before `subscribe` returns. Subscribing is cheap, and nothing is watched while
   * no one has subscribed.
   * @returns ends the subscription when it is disposed of
   */
  subscribe(listener: () => void): Disposable;
  /** Deletes what was made before a time, as much as a transaction may, but not the newest one. @returns whether more is left */
  deleteExpired(before: Date): Promise<boolean>;
}
