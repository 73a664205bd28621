import { Kind, TypeGuard } from "@sinclair/typebox";
import { TypeCompiler, type ValueError, ValueErrorType } from "@sinclair/typebox/compiler";
import { type FieldError, failInvalid, type ProblemCode, type ProblemDetails } from "./error.ts";
import { UNREADABLE } from "./readable-text.ts";
import { hasLength, IS_AMOUNT, isStorable, type Schema, type ValueOf } from "./schema.ts";

export const MAX_PROBLEMS = 20;
/** Longer field names are cut in messages, because a client can choose them. */
const MAX_FIELD_LENGTH = 100;

function describeRange(low: number, high: number, unit: string): string {
  return low === 0 ? `at most ${high} ${unit}` : `${low} to ${high} ${unit}`;
}

function isLong(values: readonly string[] | undefined): boolean {
  return values !== undefined && values.length > 10;
}

/** @returns what a value must be, to follow the name of its field */
export function describeConstraint(schema: Schema): string {
  if (TypeGuard.IsUnion(schema)) {
    const [inner] = schema.anyOf;
    return inner === undefined ? "must be null" : `${describeConstraint(inner)} or null`;
  }
  if (TypeGuard.IsRecord(schema))
    return schema.maxProperties === undefined
      ? "must be an object"
      : `must be an object of at most ${schema.maxProperties} entries`;
  if (TypeGuard.IsArray(schema))
    return `must be an array of ${describeRange(schema.minItems ?? 0, schema.maxItems ?? 0, "items")}`;
  if (TypeGuard.IsInteger(schema))
    return `must be an integer from ${schema.minimum} to ${schema.maximum}`;
  if (schema[Kind] === "Text") {
    const { enum: values } = schema;
    if (isLong(values)) return `must be ${schema.description}`;
    if (values !== undefined) return `must be one of ${values.join(", ")}`;
    if (schema.format === "date-time")
      return "must be a time with an offset, such as 2026-11-20T18:57:03.120Z";
    const what = schema.format === "email" ? "an email address" : "text";
    const range = describeRange(schema.minLength ?? 0, schema.maxLength, "characters");
    const rules = "no control characters, no white space at its ends";
    const form = schema.pattern === undefined ? "" : ` (${rules})`;
    return `must be ${what} of ${range}${form}`;
  }
  return "must be a JSON object";
}

export function displayField(name: string): string {
  if (name === "") return '""';
  const cut = name.length > MAX_FIELD_LENGTH ? `${name.slice(0, MAX_FIELD_LENGTH)}…` : name;
  // The cut can split a surrogate pair.
  return cut.toWellFormed();
}

/** @returns the field of a TypeBox path: `items[0].unit_price` for `/items/0/unit_price`, `body` for the root */
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

type Problem = Omit<FieldError, "field">;

export const unknownField = "is not allowed";

/** Maps are not changed. @param onUnknown called with the path of each dropped field, without indices: `items.color` */
export function removeUnknownFields(
  value: unknown,
  schema: Schema,
  onUnknown: (field: string) => void,
  path = "",
): unknown {
  if (TypeGuard.IsArray(schema) && Array.isArray(value))
    return value.map((element) => removeUnknownFields(element, schema.items, onUnknown, path));
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (!TypeGuard.IsObject(schema) || !isObject) return value;
  const known: [string, unknown][] = [];
  for (const [name, member] of Object.entries(value)) {
    const memberPath = path === "" ? displayField(name) : `${path}.${displayField(name)}`;
    const inner = Object.hasOwn(schema.properties, name) ? schema.properties[name] : undefined;
    if (inner === undefined) onUnknown(memberPath);
    else known.push([name, removeUnknownFields(member, inner, onUnknown, memberPath)]);
  }
  return Object.fromEntries(known);
}

function problemOf({ type, schema, path, value }: ValueError, record?: Schema): Problem {
  const of = (code: ProblemCode, details?: ProblemDetails) => ({
    code,
    problem: describeConstraint(schema),
    ...details,
  });
  switch (type) {
    case ValueErrorType.ObjectRequiredProperty:
      return { code: "required", problem: "is required" };
    case ValueErrorType.ObjectAdditionalProperties: {
      if (TypeGuard.IsRecord(schema)) {
        return isStorable(path)
          ? { code: "length", problem: "must have a name of 1 to 40 characters", min: 1, max: 40 }
          : { code: "format", problem: "must have a name without U+0000 and lone surrogates" };
      }
      const isReadOnly = Object.hasOwn(record?.properties ?? {}, path.slice(1));
      if (isReadOnly) return { code: "read_only", problem: "is read-only" };
      const allowed = Object.keys(schema.properties);
      return { code: "not_allowed", problem: unknownField, allowed };
    }
    case ValueErrorType.IntegerMinimum:
    case ValueErrorType.IntegerMaximum:
      return of("range", { min: schema.minimum, max: schema.maximum });
    case ValueErrorType.ArrayMinItems:
    case ValueErrorType.ArrayMaxItems:
      return of("length", { min: schema.minItems, max: schema.maxItems });
    case ValueErrorType.ObjectMaxProperties:
      return of("length", { min: 0, max: schema.maxProperties });
    case ValueErrorType.Integer: {
      const range =
        IS_AMOUNT in schema
          ? "in minor units: 500 for 5.00"
          : `from ${schema.minimum} to ${schema.maximum}`;
      return { code: "type", problem: `must be a whole number ${range}` };
    }
    default: {
      // That of `Nullable`.
      const inner = TypeGuard.IsUnion(schema) ? schema.anyOf[0] : schema;
      if (typeof value !== "string" || inner?.[Kind] !== "Text") return of("type");
      if (!isStorable(value))
        return { code: "format", problem: "must be text without U+0000 and lone surrogates" };
      const { enum: allowed, minLength: min = 0, maxLength: max = Infinity } = inner;
      if (allowed !== undefined && !isLong(allowed)) return of("not_allowed", { allowed });
      const hidden = inner["format"] === "email" ? UNREADABLE.exec(value)?.[0] : undefined;
      const code = hidden?.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0");
      const rule = "must not have white space or invisible characters, such as";
      if (code !== undefined) return { code: "format", problem: `${rule} U+${code}` };
      return hasLength(value, min, max) ? of("format") : of("length", { min, max });
    }
  }
}

/** @returns the error of the first alternative of a union, which is more specific than that of the union */
function innermost(error: ValueError): ValueError {
  if (error.type !== ValueErrorType.Union) return error;
  const [inner] = error.errors;
  const nested = inner?.First();
  return nested === undefined || nested.path === error.path ? error : innermost(nested);
}

/** @param record whose other fields are read-only, not unknown. @returns a function that throws {AppError} validation_failed */
export function createValidator<Of extends Schema>(schema: Of, record?: Schema) {
  let compiled: ReturnType<typeof TypeCompiler.Compile<Of>> | null = null;
  return function validate(value: unknown): ValueOf<Of> {
    // On first use, because most commands validate little or nothing.
    compiled ??= TypeCompiler.Compile(schema);
    if (compiled.Check(value)) return value;
    const problems = new Map<string, FieldError>();
    for (const rawError of compiled.Errors(value)) {
      const error = innermost(rawError);
      const field = fieldFromPath(error.path, value);
      if (problems.has(field)) continue;
      problems.set(field, { field, ...problemOf(error, record) });
      if (problems.size === MAX_PROBLEMS) break;
    }
    failInvalid([...problems.values()]);
  };
}
