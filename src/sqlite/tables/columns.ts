import type { Database } from "bun:sqlite";
import type { Schema } from "../../base/schema.ts";
import { type Column, columnsOf, jsonTemplate } from "../../domain/columns.ts";
import { sqliteVersion } from "../file/connection.ts";

function jsonValue({ name, type, isNullable }: Column): string {
  const value = type === "text" ? `json_quote(${name})` : name;
  // `json_quote` renders NULL as `null`, but takes longer.
  return isNullable ? `iif(${name} is null, 'null', ${value})` : value;
}

/** The first SQLite with `concat`, which takes two thirds of the time of `format` and of `||`. */
const CONCAT_SINCE = "3.44.0";

/** A list takes three quarters of the time that it takes if TypeScript renders its records from their columns. */
export function recordJson(db: Database, record: Schema): string {
  const columns = columnsOf(record);
  const template = jsonTemplate(columns);
  const values = columns.map(jsonValue);
  if (Bun.semver.order(sqliteVersion(db), CONCAT_SINCE) < 0)
    return `format('${template}', ${values.join(", ")})`;
  const [start, ...literals] = template.split("%s");
  return `concat('${start}', ${values.map((value, at) => `${value}, '${literals[at]}'`).join(", ")})`;
}
