import { fail, failField } from "../../base/error.ts";

export const JSON_TYPE = "application/json";
/** JSON Merge Patch (RFC 7396). */
export const PATCH_TYPE = "application/merge-patch+json";
/** `Accept-Patch` of a 415 (RFC 5789 §2.2). */
export const PATCH_TYPES = `${JSON_TYPE}, ${PATCH_TYPE}`;
export const TEXT_TYPE = "text/plain; charset=utf-8";

export interface InputSchema<Value> {
  /** @returns the typed value. @throws {AppError} if the input is not valid */
  readonly parse: (input: unknown) => Value;
  readonly schema: JsonSchema;
}

export type JsonSchema = Readonly<Record<string, unknown>>;

/** @returns `NaN` if it is not canonical base 10. Values above 2^53 are rounded: compare before use */
export function parseInteger(text: string): number {
  return /^(?:0|-?[1-9]\d*)$/.test(text) ? Number(text) : Number.NaN;
}

function idSchema(id: JsonSchema, parse: (text: string) => number): InputSchema<{ id: number }> {
  const schema = { properties: { id: { type: "integer", ...id } } };
  // Routers pass the parameters of a path as text.
  return { schema, parse: (params) => ({ id: parse((params as { readonly id: string }).id) }) };
}

/** Replaces a valid id that is larger than any assigned one. No record has it. */
const UNUSED_ID = 0;

/** `/users/:id`: a positive integer in canonical base 10, of any length. */
export const userParams = idSchema(
  { description: "The id of the user, in canonical base 10", minimum: 1 },
  (text) => {
    const id = parseInteger(text);
    if (!(id > 0)) failField("id", "format", "must be a positive integer");
    return id > Number.MAX_SAFE_INTEGER ? UNUSED_ID : id;
  },
);

/** `/orders/:id`: a 64-bit integer in base 10. A sign and leading zeros are allowed, as in Go's `ParseInt`. */
export const orderParams = idSchema(
  { description: "The id of the order, in base 10. A sign and leading zeros are allowed" },
  (text) => {
    // Most ids: without `BigInt`, which takes longer than the rest.
    if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
    const id = /^[+-]?\d+$/.test(text) ? BigInt(text) : null;
    if (id !== null && id === BigInt.asIntN(64, id))
      return id < 1n || id > Number.MAX_SAFE_INTEGER ? UNUSED_ID : Number(id);
    return fail("invalid_order_id");
  },
);
