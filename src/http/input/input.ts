export interface InputSchema<Value> {
  /** @returns the typed value. @throws {AppError} if the input is not valid */
  readonly parse: (input: unknown) => Value;
  /** For the OpenAPI document. */
  readonly schema: JsonSchema;
}

export type JsonSchema = Readonly<Record<string, unknown>>;

/** @returns `NaN` if it is not canonical base 10. Values above 2^53 are rounded: compare before use */
export function parseInteger(text: string): number {
  return /^(?:0|-?[1-9]\d*)$/.test(text) ? Number(text) : Number.NaN;
}
