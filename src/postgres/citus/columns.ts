import type { ColumnTypes } from "../columns.ts";

/** @returns the values of these columns, from a JSON object. Citus performs `values` faster than it selects from JSON */
export function valuesFrom(json: string, columns: ColumnTypes): string {
  return Object.entries(columns)
    .map(([name, type]) => `(${json}::text::json ->> '${name}')::${type}`)
    .join(", ");
}
