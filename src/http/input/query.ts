/** The query string of a request. */
import { failDuplicate, failField } from "../../base/error.ts";
import { Empty, type Schema, type ValueOf } from "../../base/schema.ts";
import { createValidator, displayField, MAX_PROBLEMS } from "../../base/validator.ts";
import { inputSchema, parseInteger } from "./input.ts";

function decodePercent(text: string): string | null {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/** Values by name. Clients choose the names, so none is inherited, and `__proto__` is one like any other. */
type Values = Record<string, unknown>;

/**
 * Parses the query of a URL. `+` is a plus sign (RFC 3986), not a space: emails contain it, and no parameter
 * contains spaces. Ends at the last unknown parameter that an error can list: a URL has room for thousands.
 * @param properties of all parameters that are allowed
 * @returns the given parameters. Malformed integers are `NaN`, which no schema accepts
 * @throws {AppError} validation_failed if a parameter is given twice, or a percent-encoding is not UTF-8
 */
function parseQuery(url: string, properties: Readonly<Record<string, Schema>>): Values {
  const values: Values = Object.create(null);
  let unknown = 0;
  for (const part of url.slice(url.indexOf("?") + 1).split("&")) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    const name = decodePercent(equals === -1 ? part : part.slice(0, equals));
    const value = decodePercent(equals === -1 ? "" : part.slice(equals + 1));
    if (name === null) failField("query", "format", "must be percent-encoded UTF-8");
    if (value === null) failField(displayField(name), "format", "must be percent-encoded UTF-8");
    if (name in values) failDuplicate(displayField(name));
    if (Object.hasOwn(properties, name)) {
      values[name] = properties[name]?.["type"] === "integer" ? parseInteger(value) : value;
      continue;
    }
    // Long names take long to validate.
    values[displayField(name)] = value;
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

  function validateWithDefaults(values: Values): ValueOf<Of> {
    for (const [name, value] of defaults) values[name] ??= value;
    return validate(values);
  }

  /** Most requests have no query: its value is computed once. */
  let defaultQuery: ValueOf<Of> | null = null;
  return inputSchema(schema, (value) => {
    const url = String(value);
    if (!url.includes("?")) {
      defaultQuery ??= validateWithDefaults({});
      return defaultQuery;
    }
    const given = parseQuery(url, properties);
    // Other routes reject `after` itself.
    if ("after" in given && "offset" in given && Object.hasOwn(properties, "after")) {
      const allowed = Object.keys(properties).filter((name) => name !== "offset");
      failField("offset", "not_allowed", "cannot be combined with after", { allowed });
    }
    return validateWithDefaults(given);
  });
}

/** For a route without query parameters. */
export const noQuery = querySchema(Empty);
