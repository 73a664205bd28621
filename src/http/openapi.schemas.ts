/** The schemas of the OpenAPI document: those that validate requests, converted to JSON Schema. */
import { Metadata } from "../metadata.ts";
import { Order, OrderInput, OrderItem, OrderPatch } from "../order.ts";
import { page_query } from "../page.ts";
import { MAX_PROBLEMS, type Schema } from "../schema.ts";
import { User, UserInput, UserPatch } from "../user.ts";
import { error_responses, type ResponseTemplate } from "./errors.ts";

export type Json = Readonly<Record<string, unknown>>;

/**
 * The pattern of `isEmail` in `schema.ts`, with negated character classes, because patterns of JSON Schema have
 * no flags. Unlike `isEmail`, it allows format characters, such as a soft hyphen.
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

/** @returns a reference to a schema with a title; any other schema inline */
export function schemaOrRef(schema: Schema): Json {
  return schema.title === undefined ? inlineSchema(schema) : ref("schemas", schema.title);
}

/** @returns the schema in the form that most tools support */
function inlineSchema({ title, ...schema }: Schema): Json {
  const { anyOf, patternProperties, properties, items, ...rest } = schema;
  if (anyOf !== undefined) {
    // The only unions are those of `Nullable`.
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
  // `email` of JSON Schema is ASCII only (RFC 5321). Here, all letters are allowed (RFC 6531).
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

/** @param more the members in addition to `data` and `error` */
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
      total: { ...integer(0), description: "The exact number of records that match the filters" },
      limit: integer(minimum, maximum),
      offset: integer(0),
    }),
    FieldError: object({ field: { ...text, examples: ["items[0].quantity"] }, problem: text }),
    Error: object({
      data: { type: "null" },
      error: { ...text, description: "A message for people. It may change" },
      meta: object(
        {
          code: { ...text, enum: errorCodes(), description: "A stable identifier for programs" },
          problems: {
            ...problems,
            description: "The problems, if the code is `validation_failed`",
          },
        },
        ["problems"],
      ),
    }),
  };
}
