import type { Schema } from "../../base/schema.ts";
import { type Column, columnsOf, jsonTemplate } from "../../domain/columns.ts";

/** @returns the columns of a record, for a statement that selects or inserts them */
export function columnNames(record: Schema): string {
  return columnsOf(record)
    .map(({ name }) => name)
    .join(", ");
}

function jsonValue({ name, type, isNullable }: Column): string {
  // `json_quote` renders NULL as `null`.
  if (type === "text") return `json_quote(${name})`;
  return isNullable ? `coalesce(${name}, 'null')` : name;
}

/**
 * Renders a record as JSON, which costs less to read as one text than as a value per column.
 * @returns expressions for the parts of the text, from the columns of the table, for `concatenated`
 */
export function recordJson(record: Schema): string[] {
  const columns = columnsOf(record);
  const [start, ...literals] = jsonTemplate(columns).split("%s");
  const rest = columns.flatMap((column, at) => [jsonValue(column), `'${literals[at]}'`]);
  return [`'${start}'`, ...rest];
}
