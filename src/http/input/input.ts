/** What the parsers of all parts of a request share. */

/**
 * A parser of one part of a request. The pipeline calls `parse`; `~standard` gives Elysia the type of the value.
 * @see https://standardschema.dev
 */
export interface InputSchema<Value> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: "user-api";
    readonly validate: (value: unknown) => { readonly value: Value };
    readonly types?: { readonly input: Value; readonly output: Value };
  };
  /** @returns the typed value. @throws {AppError} if the input is not valid */
  readonly parse: (input: unknown) => Value;
  /** The JSON Schema of the value, for the OpenAPI document. */
  readonly schema: JsonSchema;
}

export type JsonSchema = Readonly<Record<string, unknown>>;

export function inputSchema<Value>(
  schema: JsonSchema,
  parse: (input: unknown) => Value,
): InputSchema<Value> {
  const validate = (input: unknown) => ({ value: parse(input) });
  return { "~standard": { version: 1, vendor: "user-api", validate }, parse, schema };
}

/**
 * Reads an integer in canonical base 10.
 * @returns `NaN` for any other text. Values above 2^53 are rounded: compare before use
 */
export function parseInteger(text: string): number {
  return /^(?:0|-?[1-9]\d*)$/.test(text) ? Number(text) : Number.NaN;
}
