import type { ColumnTypes } from "../columns.ts";
import type { Value } from "../connection.ts";

/** @returns the parameters of a statement for these columns, e.g. `$2, $3` */
export function parametersOf(columns: ColumnTypes, first = 1): string {
  return Object.keys(columns)
    .map((_, at) => `$${first + at}`)
    .join(", ");
}

/** @returns the values of a row, in the order of the columns. @throws if one is missing */
export function valuesOf(columns: ColumnTypes, row: Readonly<Record<string, Value>>): Value[] {
  return Object.keys(columns).map((name) => {
    const value = row[name];
    if (value === undefined) throw new Error(`the row has no ${name}`);
    return value;
  });
}
