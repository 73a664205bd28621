/** The schemas of the API document: the very ones that check requests, in the words of JSON Schema. */
import { Metadata } from "../metadata.ts";
import { Order, OrderInput, OrderItem, OrderPatch } from "../order.ts";
import { page_query } from "../page.ts";
import { MAX_PROBLEMS, type Schema } from "../schema.ts";
import { User, UserInput, UserPatch } from "../user.ts";
import { error_responses, type ResponseTemplate } from "./errors.ts";

export type Json = Readonly<Record<string, unknown>>;

/**
 * `isEmail` of `schema.ts`, written with the characters that it excludes, because a pattern in JSON Schema
 * has no flags. It allows format characters, such as a soft hyphen, which `isEmail` does not.
 */
const LOCAL = String.raw`[^\x00-\x20"(),.:;<>@\[\\\]\x7f-\x9f\s]+`;
const ALPHANUMERIC = String.raw`[^\x00-/:-@\[-\x60{-\x9f\s]`;
const LABEL = String.raw`${ALPHANUMERIC}(?:[^\x00-,./:-@\[-\x60{-\x9f\s]*${ALPHANUMERIC})?`;
const EMAIL_PATTERN = String.raw`^${LOCAL}(?:\.${LOCAL})*@${LABEL}(?:\.${LABEL})+$`;

type Section = "schemas" | "headers" | "parameters" | "responses";

export function ref(section: Section, name: string): Json {
  return { $ref: `#/components/${section}/${name}` };
}

export function mapValues<Value>(
  values: Readonly<Record<string, Value>>,
  map: (value: Value) => Json,
): Json {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, map(value)]));
}

/** A schema as it stands in the document: one with a title by reference, any other in place. */
export function schemaOrRef(schema: Schema): Json {
  return schema.title === undefined ? inlineSchema(schema) : ref("schemas", schema.title);
}

/** The same schema, in the words that tools know best. */
function inlineSchema({ title, ...schema }: Schema): Json {
  const { anyOf, patternProperties, properties, items, ...rest } = schema;
  if (anyOf !== undefined) {
    // All of them are `Nullable`.
    const inner = schemaOrRef(anyOf[0]);
    return { ...inner, type: [inner["type"], "null"] };
  }
  if (patternProperties !== undefined) {
    const [entry] = Object.entries<Schema>(patternProperties);
    const [pattern, value] = entry ?? ["", {} as Schema];
    return { ...rest, propertyNames: { pattern }, additionalProperties: schemaOrRef(value) };
  }
  if (properties !== undefined) return { ...rest, properties: mapValues(properties, schemaOrRef) };
  if (items !== undefined) return { ...rest, items: schemaOrRef(items) };
  if (schema["format"] !== "email") return rest;
  // JSON Schema's `email` is ASCII alone (RFC 5321); ours may have any letters (RFC 6531).
  return { ...rest, format: "idn-email", pattern: EMAIL_PATTERN };
}

export function object(properties: Json, optional: readonly string[] = []): Json {
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return { type: "object", properties, required, additionalProperties: false };
}

export const integer = (minimum: number, maximum = Number.MAX_SAFE_INTEGER) => ({
  type: "integer",
  minimum,
  maximum,
});

/** @param data what the answer is about @param more members beside `data` and `error` */
export function envelopeSchema(data: Json, more: Json = {}): Json {
  return object({ data, error: { type: "null" }, ...more });
}

/** Every `meta.code` that a response can have. */
function errorCodes(): string[] {
  const templates: readonly ResponseTemplate[] = Object.values(error_responses);
  return [...new Set(templates.flatMap((template) => ("code" in template ? template.code : [])))];
}

export function schemas(): Json {
  const { minimum = 0, maximum = 0 } = page_query.limit;
  const { currency, status } = Order.properties;
  const users = [User, UserInput, UserPatch];
  const orders = [Order, OrderItem, OrderInput, OrderPatch, currency, status];
  const named: readonly Schema[] = [...users, ...orders, Metadata];
  const text = { type: "string" };
  const problems = { type: "array", items: ref("schemas", "FieldError"), maxItems: MAX_PROBLEMS };
  return {
    ...Object.fromEntries(named.map((schema) => [schema.title, inlineSchema(schema)])),
    PageMeta: object({
      total: { ...integer(0), description: "How many records the filters match, exactly" },
      limit: integer(minimum, maximum),
      offset: integer(0),
    }),
    FieldError: object({ field: { ...text, examples: ["items[0].quantity"] }, problem: text }),
    Error: object({
      data: { type: "null" },
      error: { ...text, description: "A sentence for people. It may change: depend on the code" },
      meta: object(
        {
          code: { ...text, enum: errorCodes(), description: "Stable, for programs" },
          problems: { ...problems, description: "All that is wrong, of a `validation_failed`" },
        },
        ["problems"],
      ),
    }),
  };
}
