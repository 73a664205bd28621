/** Records as text. A response sends what the store has read, without parsing it. */

declare const parsed: unique symbol;

/** JSON text. `Value` is the type of the parsed value; it exists only for the compiler. */
export type JsonText<Value> = string & { readonly [parsed]?: Value };

export function jsonText<Value>(value: Value): JsonText<Value> {
  return JSON.stringify(value);
}

/** A user or an order as JSON, with what the headers of a response need of it. */
export interface RecordText<Row> {
  readonly id: number;
  readonly version: number;
  readonly json: JsonText<Row>;
}

/** @returns the record as text. @param render the renderer of its kind, e.g. `userJson` */
export function recordText<Stored extends { readonly id: number; readonly version: number }, Row>(
  row: Stored,
  render: (row: Stored) => JsonText<Row>,
): RecordText<Row> {
  return { id: row.id, version: row.version, json: render(row) };
}

/** @param json text of a record, as `recordText` has rendered it. @returns the same record */
export function parseRecordText<Row>(json: string): RecordText<Row> {
  const { id, version } = JSON.parse(json);
  return { id, version, json: json as JsonText<Row> };
}
