/** The query string of a request. */
import { failField } from "../error.ts";
import { createValidator, displayField, Empty, type Schema, type ValueOf } from "../schema.ts";
import { inputSchema, parseUnsigned } from "./input.ts";

function decodePercent(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/**
 * Parses the query of a URL. `+` is a plus sign (RFC 3986), not a space: emails contain it, and no parameter
 * contains spaces.
 * @throws {AppError} invalid if a parameter is given twice, or a percent-encoding is not UTF-8
 */
function readQuery(url: string): Record<string, string> {
  const start = url.indexOf("?");
  if (start === -1) return {};
  const values = new Map<string, string>();
  for (const part of url.slice(start + 1).split("&")) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    const name = decodePercent(equals === -1 ? part : part.slice(0, equals));
    const value = decodePercent(equals === -1 ? "" : part.slice(equals + 1));
    if (name === null) failField("query", "must be percent-encoded UTF-8");
    if (value === null) failField(displayField(name), "must be percent-encoded UTF-8");
    if (values.has(name)) failField(displayField(name), "is given more than once");
    values.set(name, value);
  }
  return Object.fromEntries(values);
}

/** Applies the defaults of the schema and parses its integers. Malformed ones become `NaN`, which no schema accepts. */
function coerceQuery(schema: Schema, query: Record<string, string>): Record<string, unknown> {
  const values: Record<string, unknown> = { ...query };
  for (const [name, property] of Object.entries<Schema>(schema["properties"])) {
    const text = query[name];
    if (text === undefined) {
      if (property.default !== undefined) values[name] = property.default;
    } else if (property["type"] === "integer") {
      values[name] = parseUnsigned(text);
    }
  }
  return values;
}

/** Validates the query of a URL: the parameters of the schema are allowed, all others are rejected. */
export function querySchema<Of extends Schema>(schema: Of) {
  const validate = createValidator(schema);
  const takes_cursor = Object.hasOwn(schema["properties"], "after");
  // Most requests have no query: compute its value once.
  const default_query = coerceQuery(schema, {}) as ValueOf<Of>;
  return inputSchema(schema, (value) => {
    const url = String(value);
    if (!url.includes("?")) return default_query;
    const given = readQuery(url);
    if (takes_cursor && given["after"] !== undefined && given["offset"] !== undefined) {
      failField("offset", "cannot be combined with after");
    }
    return validate(coerceQuery(schema, given));
  });
}

/** For a route without query parameters. */
export const noQuery = querySchema(Empty);
