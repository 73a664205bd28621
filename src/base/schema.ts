/** For TypeBox: text in code points, and types that all records share. The `title` of a schema is its name in the document. */
import type { Static, TProperties, TSchema } from "@sinclair/typebox";
import { Kind, Type, TypeRegistry } from "@sinclair/typebox";
import { isEmail } from "./email.ts";

/** Other layers use these names instead of those of TypeBox. */
export type Schema = TSchema;
export type ValueOf<Of extends Schema> = Static<Of>;

interface TextOptions {
  readonly title?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly format?: "email" | "date-time";
  readonly pattern?: string;
  readonly enum?: readonly string[];
  /** For the OpenAPI document. For an `enum` of more than 10 values, messages use it instead of them. */
  readonly description?: string;
}

/** Without control characters, and without white space at the ends. */
export const TRIMMED_PATTERN = String.raw`^[^\s\x00-\x1f\x7f-\x9f](?:[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?$`;
const TRIMMED = new RegExp(TRIMMED_PATTERN);
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** Whether the text is RFC 3339 in UTC with milliseconds and `Z`, exactly as we write it. */
export function isTime(text: string): boolean {
  if (!TIME.test(text)) return false;
  const time = new Date(text);
  // `Date` reads the 30th of February as the 2nd of March, and rejects a 25th hour.
  return !Number.isNaN(time.getTime()) && time.toISOString() === text;
}

/** Whether the text is well-formed Unicode without U+0000, which every database stores unchanged. */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes("\0");
}

/** Counts code points, as JSON Schema does, rather than UTF-16 units. @param text well-formed */
export function hasLength(text: string, min: number, max: number): boolean {
  // A code point has one or two units. Counting takes long, and most texts do not need it.
  if (text.length < min || text.length > 2 * max) return false;
  if (text.length >= 2 * min && text.length <= max) return true;
  let length = text.length;
  for (let at = 0; at < text.length; at += 1) {
    // The second unit of a code point. Iterating over code points would allocate a string for each.
    if ((text.charCodeAt(at) & 0xfc00) === 0xdc00) length -= 1;
  }
  return length >= min && length <= max;
}

TypeRegistry.Set<TextOptions>("Text", (schema, value) => {
  if (typeof value !== "string" || !isStorable(value)) return false;
  if (schema.enum !== undefined) return schema.enum.includes(value);
  if (schema.format === "date-time") return isTime(value);
  if (!hasLength(value, schema.minLength ?? 0, schema.maxLength ?? Infinity)) return false;
  if (schema.pattern !== undefined) return TRIMMED.test(value);
  return schema.format !== "email" || isEmail(value);
});

export const noExtraFields = { additionalProperties: false } as const;

/** An object with these fields only. */
export function Closed<Fields extends TProperties>(fields: Fields) {
  return Type.Object(fields, noExtraFields);
}

/** @param title its name in the OpenAPI document */
export function Named<Fields extends TProperties>(title: string, fields: Fields) {
  return Type.Object(fields, { ...noExtraFields, title });
}

export const Empty = Closed({});

/** 1, 2, 3 …, never reused. */
export const Id = SafeInteger(1);

export const Version = SafeInteger(1, "From 1, up by one on every change");

export const Time = Text({
  format: "date-time",
  description: "RFC 3339 in UTC, with milliseconds and `Z`",
});

/** An integer that every client can read exactly, because a double holds it. */
export function SafeInteger(minimum: number, description?: string) {
  const range = { minimum, maximum: Number.MAX_SAFE_INTEGER };
  return Type.Integer(description === undefined ? range : { ...range, description });
}

/** Marks the schema of an amount of money. No part of the OpenAPI document. */
export const IS_AMOUNT = Symbol("amount");

/** In the minor unit of its currency. */
export function Amount(minimum: number, description: string) {
  return { ...SafeInteger(minimum, description), [IS_AMOUNT]: true };
}

export function Text(options: TextOptions) {
  return Type.Unsafe<string>({ [Kind]: "Text", type: "string", ...options });
}

export function OneOf<const Value extends string>(
  values: readonly Value[],
  options: Pick<TextOptions, "title" | "description"> = {},
) {
  return Type.Unsafe<Value>({ [Kind]: "Text", type: "string", enum: values, ...options });
}

export function Parameter<Of extends Schema>(schema: Of, description: string) {
  return Type.Optional({ ...schema, description });
}

export function Nullable<Inner extends Schema>(schema: Inner) {
  return Type.Union([schema, Type.Null()]);
}
