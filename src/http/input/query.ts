import { failDuplicate, failField } from "../../base/error.ts";
import { Empty, type Schema, type ValueOf } from "../../base/schema.ts";
import { createValidator, describeConstraint, displayField } from "../../base/validator.ts";
import { MAX_IDS } from "../../domain/page.ts";
import { exactUtcOf, roundUp } from "../../domain/time.ts";
import { type InputSchema, parseInteger } from "./input.ts";

function decodePercent(text: string, field: string): string {
  try {
    return text.includes("%") ? decodeURIComponent(text) : text;
  } catch {
    return failField(field, "format", "must be percent-encoded UTF-8");
  }
}

/** @returns different values, in the order given: ids, or values of an `enum` */
function parseList(field: string, text: string, items: Schema): unknown[] {
  const values = text.split(",", MAX_IDS + 1);
  const allowed: readonly string[] | undefined = items["enum"];
  if (allowed !== undefined) {
    if (!values.every((value) => allowed.includes(value)))
      failField(field, "not_allowed", describeConstraint(items), { allowed });
  } else if (values.length > MAX_IDS || !values.every((id) => parseInteger(id) > 0)) {
    const rule = `must be 1 to ${MAX_IDS} ids, separated by commas: ${field}=1,2`;
    failField(field, "format", rule);
  }
  const repeated = values.find((value, at) => values.indexOf(value) !== at);
  if (repeated !== undefined) failField(field, "duplicate", `has ${repeated} more than once`);
  if (allowed !== undefined) return values;
  // An id that no record can have is the largest of all.
  return [...new Set(values.map((id) => Math.min(Number(id), Number.MAX_SAFE_INTEGER)))];
}

/** Rounds a time up, so that a record is before it or not, as before. @returns the time itself, if it is one */
function parseTime(values: Values, name: string): string | null {
  if (!(name in values)) return null;
  const exact = exactUtcOf(String(values[name]));
  if (exact !== null) values[name] = roundUp(exact);
  return exact;
}

/** Values by name. Clients choose the names, so none is inherited, and `__proto__` is one like any other. */
type Values = Record<string, unknown>;

/**
 * Parses the query of a URL. `+` is a plus sign (RFC 3986), not a space: emails contain it, and no parameter
 * contains spaces.
 * @returns the given parameters. Malformed integers are `NaN`, which no schema accepts. The values of a list are joined
 * with commas, whether it came as `id=1,2`, `id=1&id=2` or `id[]=1&id[]=2`: many clients know only one of these
 * @throws {AppError} validation_failed if a parameter is given twice, or a percent-encoding is not UTF-8
 */
function parseQuery(url: string, properties: Readonly<Record<string, Schema>>): Values {
  const values: Values = Object.create(null);
  const start = url.indexOf("?");
  if (start === -1) return values;
  const parts = url.slice(start + 1).split("&");
  for (const part of parts.filter(Boolean)) {
    const equals = part.indexOf("=");
    const name = decodePercent(equals === -1 ? part : part.slice(0, equals), "query");
    // Long names take long to validate.
    const field = displayField(name);
    const value = decodePercent(equals === -1 ? "" : part.slice(equals + 1), field);
    const list = field.endsWith("[]") ? field.slice(0, -2) : field;
    const type = properties[list]?.["type"];
    if (type === "array") {
      values[list] = list in values ? `${values[list]},${value}` : value;
      continue;
    }
    if (field in values) failDuplicate(field);
    values[field] = type === "integer" ? parseInteger(value) : value;
  }
  return values;
}

export function querySchema<Of extends Schema>(schema: Of): InputSchema<ValueOf<Of>> {
  const validate = createValidator(schema);
  const properties: Readonly<Record<string, Schema>> = schema["properties"];
  const defaults = Object.entries(properties).filter(([, value]) => value["default"] !== undefined);
  const namesWith = (keyword: string, value: string) =>
    Object.keys(properties).filter((name) => properties[name]?.[keyword] === value);
  const [lists, times] = [namesWith("type", "array"), namesWith("format", "date-time")];

  function parse(url: unknown): ValueOf<Of> {
    const values = parseQuery(String(url), properties);
    // Other routes reject `after` itself.
    if ("after" in values && "offset" in values && Object.hasOwn(properties, "after")) {
      const allowed = Object.keys(properties).filter((name) => name !== "offset");
      failField("offset", "not_allowed", "cannot be combined with after", { allowed });
    }
    for (const name of lists) {
      if (!(name in values)) continue;
      values[name] = parseList(name, String(values[name]), properties[name]?.["items"]);
      if (name === "id") values["limit"] ??= MAX_IDS;
    }
    const [from, to] = times.map((name) => parseTime(values, name));
    for (const [name, property] of defaults) values[name] ??= property["default"];
    const query = validate(values);
    if (from && to && from >= to) failField("created_to", "format", "must be after created_from");
    return query;
  }

  return { schema, parse };
}

export const noQuery = querySchema(Empty);
