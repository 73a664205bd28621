import type { Schema } from "../../base/schema.ts";
import { type Column, columnsOf, jsonTemplate } from "../../domain/columns.ts";

function jsonValue({ name, type, isNullable }: Column): string {
  // `json_quote` renders NULL as `null`.
  if (type === "text") return `json_quote(${name})`;
  return isNullable ? `coalesce(${name}, 'null')` : name;
}

/**
 * A list takes three quarters of the time that it takes if TypeScript renders its records from their columns.
 * `format` allocates the text once, while `||` copies it at each operand.
 * @returns an expression for a record as JSON, from the columns of the table
 */
export function recordJson(record: Schema): string {
  const columns = columnsOf(record);
  return `format('${jsonTemplate(columns)}', ${columns.map(jsonValue).join(", ")})`;
}
