import type { Schema } from "../../base/schema.ts";
import { type Column, columnsOf, jsonTemplate } from "../../domain/columns.ts";

export type ColumnTypes = Readonly<Record<string, string>>;

/** Columns that every record has, and that a create does not choose. */
const commonColumns: readonly string[] = ["id", "version", "created_at", "updated_at"];

export function ownColumnTypes(record: Schema): ColumnTypes {
  const own = columnsOf(record).filter(({ name }) => !commonColumns.includes(name));
  const typeOf = ({ type }: Column) => (type === "integer" ? "bigint" : "text");
  return Object.fromEntries(own.map((column) => [column.name, typeOf(column)]));
}

/** @returns e.g. `id bigint, email text`, the columns that `json_to_recordset` returns */
export function columnDefinitions(columns: ColumnTypes): string {
  return Object.entries(columns)
    .map(([name, type]) => `${name} ${type}`)
    .join(", ");
}

/** @returns what a statement selects from its first parameter, a JSON array of rows: `input` with these columns */
export function inputRows(columns: ColumnTypes): string {
  return `pg_catalog.json_to_recordset($1::text::json) as input (${columnDefinitions(columns)})`;
}

/**
 * @returns the value of a column, between the literals of `concat` around it. Long JSON is a separate argument, because
 * `||` would copy it once more.
 */
function interpolate({ name, type, isNullable }: Column): string {
  if (type === "json" && !isNullable) return `', ${name}, '`;
  const value = `${type === "text" ? `pg_catalog.to_json(${name})` : name}::text`;
  return `' || ${isNullable ? `coalesce(${value}, 'null')` : value} || '`;
}

/** @returns the JSON of a record, of its columns. `format` would look up the types of its arguments for each row */
export function recordJson(record: Schema): string {
  const columns = columnsOf(record);
  const [start, ...literals] = jsonTemplate(columns).split("%s");
  const members = columns.map((column, at) => `${interpolate(column)}${literals[at]}`).join("");
  return `pg_catalog.concat('${start}${members}')`;
}

export function recordText(record: Schema): string {
  return `id, version, ${recordJson(record)} as json`;
}

export type RowValues = Readonly<Record<string, string | number | null>>;

/** @returns a function that renders what follows the id of a record, as `recordJson` does */
export function prepareMembers(record: Schema): (row: RowValues) => string {
  const columns = columnsOf(record).filter(({ name }) => name !== "id");
  return (row) => {
    let members = "";
    for (const { name, type } of columns) {
      const value = row[name];
      const isJson = type === "json" || type === "integer";
      // Not `map` and `join`, which take five times as long.
      members += `,"${name}":${isJson ? value : JSON.stringify(value)}`;
    }
    return `${members}}`;
  };
}
