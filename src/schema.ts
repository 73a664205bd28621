/**
 * What TypeBox lacks for this service: text counted in characters, a check that names the problems in
 * a person's words, and the kinds that all records share. A schema with a `title` has that name in the
 * API document.
 */
import { Kind, type Static, type TSchema, Type, TypeGuard, TypeRegistry } from "@sinclair/typebox";
import { TypeCompiler, type ValueError, ValueErrorType } from "@sinclair/typebox/compiler";
import { type FieldError, failInvalid } from "./error.ts";

/** How many problems one refusal lists at most. */
export const MAX_PROBLEMS = 20;
/** A field's name in a message is cut after this many characters: it can be the client's own. */
const MAX_FIELD_LENGTH = 100;

/** Any schema, and the values it describes: the names by which the layers around know TypeBox. */
export type Schema = TSchema;
export type ValueOf<Of extends Schema> = Static<Of>;

interface TextOptions {
  readonly title?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly format?: "email" | "date-time";
  readonly enum?: readonly string[];
  /** For the API document. Of an `enum` also what a message calls its values, too many to list. */
  readonly description?: string;
  /** For the API document: what a `format` means here, as far as an expression can say it. */
  readonly pattern?: string;
}

/**
 * Local part and domain of RFC 5321 without quotes and address literals, with the non-ASCII
 * characters of RFC 6531, and at least one dot in the domain.
 */
const EMAIL =
  /^[\w.!#$%&'*+/=?^`{|}~\u0080-\u{10ffff}-]+@(?:[a-z0-9\u0080-\u{10ffff}](?:[a-z0-9\u0080-\u{10ffff}-]*[a-z0-9\u0080-\u{10ffff}])?\.)+[a-z0-9\u0080-\u{10ffff}](?:[a-z0-9\u0080-\u{10ffff}-]*[a-z0-9\u0080-\u{10ffff}])?$/iu;
const MISPLACED_DOT = /^\.|\.\.|\.@/;
/** White space and control characters, which `\u0080-` above would let through. */
const BLANK = /[\s\p{Cc}\p{Cf}\p{Z}]/u;

export function isEmail(text: string): boolean {
  return EMAIL.test(text) && !MISPLACED_DOT.test(text) && !BLANK.test(text);
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** RFC 3339 in UTC with milliseconds and `Z`, in the one way that we write it. */
function isTime(text: string): boolean {
  if (!TIME.test(text)) return false;
  const time = new Date(text);
  // The 30th of February is the 2nd of March to some, and a 25th hour is none to all.
  return !Number.isNaN(time.getTime()) && time.toISOString() === text;
}

/** Well-formed Unicode without U+0000: what every database here stores and returns unchanged. */
function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes("\0");
}

/** Characters as JSON Schema counts them: code points, not UTF-16 units. */
function lengthOf(text: string): number {
  let length = 0;
  for (const _ of text) length += 1;
  return length;
}

TypeRegistry.Set<TextOptions>("Text", (schema, value) => {
  if (typeof value !== "string" || !isStorable(value)) return false;
  if (schema.enum !== undefined) return schema.enum.includes(value);
  if (schema.format === "date-time") return isTime(value);
  const length = lengthOf(value);
  if (length < (schema.minLength ?? 0) || length > (schema.maxLength ?? Infinity)) return false;
  return schema.format !== "email" || isEmail(value);
});

/** Of an object: no other members than those named. */
export const no_extra_fields = { additionalProperties: false } as const;

/** An object without members. */
export const Empty = Type.Object({}, no_extra_fields);

/** 1, 2, 3 …, never given twice. */
export const Id = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });

/** From 1, up by one on every change. */
export const Version = Type.Integer({
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  description: "From 1, up by one on every change",
});

/** RFC 3339 in UTC with milliseconds and `Z`. */
export const Time = Text({
  format: "date-time",
  pattern: TIME.source,
  description: "RFC 3339 in UTC, with milliseconds and `Z`",
});

/** Text of `minLength` to `maxLength` characters (code points). */
export function Text(options: TextOptions) {
  return Type.Unsafe<string>({ [Kind]: "Text", type: "string", ...options });
}

/** One of these strings. */
export function OneOf<const Value extends string>(
  values: readonly Value[],
  options: Pick<TextOptions, "title" | "description"> = {},
) {
  return Type.Unsafe<Value>({ [Kind]: "Text", type: "string", enum: values, ...options });
}

export function Nullable<Inner extends Schema>(schema: Inner) {
  return Type.Union([schema, Type.Null()]);
}

/** "1 to 200 characters", "at most 500 characters". */
function describeRange(low: number, high: number, unit: string): string {
  return low === 0 ? `at most ${high} ${unit}` : `${low} to ${high} ${unit}`;
}

/** What a value of this schema must be, as the end of a sentence that begins with its name. */
export function describeConstraint(schema: Schema): string {
  if (TypeGuard.IsUnion(schema)) {
    const [inner] = schema.anyOf;
    return inner === undefined ? "must be null" : `${describeConstraint(inner)} or null`;
  }
  if (TypeGuard.IsRecord(schema)) {
    return schema.maxProperties === undefined
      ? "must be an object"
      : `must be an object of at most ${schema.maxProperties} entries`;
  }
  if (TypeGuard.IsArray(schema)) {
    return `must be an array of ${describeRange(schema.minItems ?? 0, schema.maxItems ?? 0, "items")}`;
  }
  if (TypeGuard.IsInteger(schema)) {
    return `must be an integer from ${schema.minimum} to ${schema.maximum}`;
  }
  if (schema[Kind] === "Text") {
    if (schema.enum !== undefined && schema.description) return `must be ${schema.description}`;
    if (schema.enum !== undefined) return `must be one of ${schema.enum.join(", ")}`;
    if (schema.format === "date-time") return "must be a time such as 2026-11-20T18:57:03.120Z";
    const what = schema.format === "email" ? "an email address" : "text";
    return `must be ${what} of ${describeRange(schema.minLength ?? 0, schema.maxLength, "characters")}`;
  }
  return "must be a JSON object";
}

/** A field's name as a message shows it: it can be the client's own, however long and odd. */
export function displayField(name: string): string {
  if (name === "") return '""';
  const cut = name.length > MAX_FIELD_LENGTH ? `${name.slice(0, MAX_FIELD_LENGTH)}…` : name;
  // The cut can go through a surrogate pair.
  return cut.toWellFormed();
}

/**
 * Where in the value a TypeBox path leads, in the words of the API: `/items/0/unit_price` is
 * `items[0].unit_price`, and the root is the body itself.
 */
function fieldFromPath(path: string, root: unknown): string {
  if (path === "") return "body";
  let field = "";
  let parent = root;
  for (const part of path.slice(1).split("/")) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(parent)) field += `[${name}]`;
    else field += field === "" ? displayField(name) : `.${displayField(name)}`;
    parent = (parent as Record<string, unknown> | null | undefined)?.[name];
  }
  return field;
}

function problemOf(error: ValueError, record: Schema | undefined): string {
  switch (error.type) {
    case ValueErrorType.ObjectRequiredProperty:
      return "is required";
    case ValueErrorType.ObjectAdditionalProperties:
      if (TypeGuard.IsRecord(error.schema)) {
        return isStorable(error.path)
          ? "must have a name of 1 to 40 characters"
          : "must have a name without U+0000 and lone surrogates";
      }
      return Object.hasOwn(record?.properties ?? {}, error.path.slice(1))
        ? "is read-only"
        : "is not allowed";
    default:
      if (typeof error.value === "string" && !isStorable(error.value)) {
        return "must be text without U+0000 and lone surrogates";
      }
      return describeConstraint(error.schema);
  }
}

/** An error of a union says nothing but "none fits": what the value's own kind objects to says more. */
function innermost(error: ValueError): ValueError {
  if (error.type !== ValueErrorType.Union) return error;
  const [inner] = error.errors;
  const nested = inner?.First();
  return nested === undefined || nested.path === error.path ? error : innermost(nested);
}

export type Validate<Value> = (value: unknown) => Value;

/**
 * Makes the check of a schema: it returns the value unchanged, or refuses it with all its problems
 * (20 at most, one a field).
 * @param record the record that this schema writes: its other fields are read-only, not unknown
 */
export function createValidator<Of extends Schema>(
  schema: Of,
  record?: Schema,
): Validate<ValueOf<Of>> {
  const compiled = TypeCompiler.Compile(schema);
  return function validate(value) {
    if (compiled.Check(value)) return value;
    const problems = new Map<string, FieldError>();
    for (const raw_error of compiled.Errors(value)) {
      const error = innermost(raw_error);
      const field = fieldFromPath(error.path, value);
      if (problems.has(field)) continue;
      problems.set(field, { field, problem: problemOf(error, record) });
      if (problems.size === MAX_PROBLEMS) break;
    }
    failInvalid([...problems.values()]);
  };
}
