import { failField } from "../base/error.ts";
import { Nullable, Text, Time, TRIMMED_PATTERN, Version } from "../base/schema.ts";

declare const parsed: unique symbol;

/** Documents the type of a parsed value, from which typed clients derive theirs. The compiler accepts any. */
export interface Parsed<Value> {
  readonly [parsed]?: Value;
}

export type JsonText<Value> = string & Parsed<Value>;

export function jsonText<Value>(value: Value): JsonText<Value> {
  return JSON.stringify(value);
}

export type RecordTable = "users" | "orders";

export const ReferenceText = Text({
  minLength: 1,
  maxLength: 255,
  pattern: TRIMMED_PATTERN,
  description: "The id that another system has for this one. Unique",
});

/** What another system calls a record. Unique among users and among orders, and compared by code points. */
export const Reference = Nullable(ReferenceText);

/** Every record ends with them. */
export const recordFields = { version: Version, created_at: Time, updated_at: Time };

/** Maximum size of a record as JSON, so that 50 of any size fit on a page. */
export const MAX_RECORD_BYTES = 2 ** 16;

const time = "2026-11-20T18:57:03.120Z";
/** The longest values of the fields that the server sets: a later change of these must not exceed the maximum. */
export const longestFields = {
  id: Number.MAX_SAFE_INTEGER,
  version: Number.MAX_SAFE_INTEGER,
  created_at: time,
  updated_at: time,
};

/** @throws {AppError} validation_failed if the record could exceed 64 KiB as JSON */
export function requireRecordSize(fields: object, longest: object = longestFields): void {
  // Enough for most, in half the time: a UTF-16 code unit takes 1 to 3 bytes in UTF-8.
  if (3 * JSON.stringify(fields).length + 2 ** 10 <= MAX_RECORD_BYTES) return;
  if (Buffer.byteLength(JSON.stringify({ ...fields, ...longest })) <= MAX_RECORD_BYTES) return;
  const problem = `must be at most ${MAX_RECORD_BYTES} bytes of JSON as a whole record`;
  failField("body", "length", problem, { min: 0, max: MAX_RECORD_BYTES });
}

export interface RecordText<Row> {
  readonly id: number;
  readonly version: number;
  readonly json: JsonText<Row>;
  /** The record is from the first request with an idempotency key, as it was then. */
  readonly replayed?: true;
}

/** @returns a record as it is created. @param time RFC 3339 */
export function firstVersion<Fields extends object>(id: number, fields: Fields, time: string) {
  return { id, ...fields, version: 1, created_at: time, updated_at: time };
}

export function nextVersion<Row extends { readonly version: number; readonly updated_at: string }>(
  record: Row,
  fields: Partial<Row>,
  time: string,
): Row {
  const updatedAt = record.updated_at > time ? record.updated_at : time;
  return { ...record, ...fields, version: record.version + 1, updated_at: updatedAt };
}

/** Name of the token that makes a change, which the change feed records; `null` for the command line. */
export type Author = string | null;
