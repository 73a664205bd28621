/** The query string of a request. */
import { failField } from "../error.ts";
import {
  createValidator,
  displayField,
  Empty,
  MAX_PROBLEMS,
  type Schema,
  type ValueOf,
} from "../schema.ts";
import { inputSchema, parseUnsigned } from "./input.ts";

function decodePercent(text: string): string | null {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/**
 * Parses the query of a URL. `+` is a plus sign (RFC 3986), not a space: emails contain it, and no parameter
 * contains spaces. Ends at the last unknown parameter that an error can list: a URL has room for thousands.
 * @param known the names of all parameters that are allowed
 * @throws {AppError} invalid if a parameter is given twice, or a percent-encoding is not UTF-8
 */
function parseQuery(url: string, known: object): Map<string, string> {
  const values = new Map<string, string>();
  let unknown = 0;
  for (const part of url.slice(url.indexOf("?") + 1).split("&")) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    const name = decodePercent(equals === -1 ? part : part.slice(0, equals));
    const value = decodePercent(equals === -1 ? "" : part.slice(equals + 1));
    if (name === null) failField("query", "must be percent-encoded UTF-8");
    if (value === null) failField(displayField(name), "must be percent-encoded UTF-8");
    if (values.has(name)) failField(displayField(name), "is given more than once");
    if (Object.hasOwn(known, name)) {
      values.set(name, value);
      continue;
    }
    // Long names take long to validate.
    values.set(displayField(name), value);
    unknown += 1;
    if (unknown === MAX_PROBLEMS) break;
  }
  return values;
}

/** Validates the query of a URL: the parameters of the schema are allowed, all others are rejected. */
export function querySchema<Of extends Schema>(schema: Of) {
  const validate = createValidator(schema);
  const properties: Readonly<Record<string, Schema>> = schema["properties"];
  const defaults = Object.entries(properties).flatMap(([name, { default: value }]) =>
    value === undefined ? [] : [[name, value] as const],
  );
  const takesCursor = Object.hasOwn(properties, "after");

  /** Applies the defaults and parses integers. Malformed ones become `NaN`, which no schema accepts. */
  function coerce(given: ReadonlyMap<string, string>): Record<string, unknown> {
    const values = new Map<string, unknown>(defaults);
    for (const [name, text] of given) {
      values.set(name, properties[name]?.["type"] === "integer" ? parseUnsigned(text) : text);
    }
    // Unlike an assignment, it makes `__proto__` an ordinary member.
    return Object.fromEntries(values);
  }

  /** Most requests have no query: its value is computed once. */
  let defaultQuery: ValueOf<Of> | null = null;
  return inputSchema(schema, (value) => {
    const url = String(value);
    if (!url.includes("?")) {
      defaultQuery ??= validate(coerce(new Map()));
      return defaultQuery;
    }
    const given = parseQuery(url, properties);
    if (takesCursor && given.has("after") && given.has("offset")) {
      failField("offset", "cannot be combined with after");
    }
    return validate(coerce(given));
  });
}

/** For a route without query parameters. */
export const noQuery = querySchema(Empty);
