/** The path of a request and its parameters, and what the validators of all parts of a request share. */
import { fail, failField } from "../error.ts";

/**
 * A validator in the form that Elysia accepts for each part of a request. Elysia's own TypeBox validation is
 * not used: it drops unknown fields, coerces `"5"` and `0x10`, and puts the rejected value into the error,
 * which takes half a second for a malicious body of 60 kB.
 * @see https://standardschema.dev
 */
export interface InputSchema<Value> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: "user-api";
    readonly validate: (value: unknown) => { readonly value: Value };
    readonly types?: { readonly input: Value; readonly output: Value };
  };
  /** The JSON Schema of the value, for the OpenAPI document. */
  readonly schema: JsonSchema;
}

export type JsonSchema = Readonly<Record<string, unknown>>;

/** @param parse returns the typed value, or throws an `AppError` */
export function inputSchema<Value>(
  schema: JsonSchema,
  parse: (value: unknown) => Value,
): InputSchema<Value> {
  return {
    "~standard": { version: 1, vendor: "user-api", validate: (value) => ({ value: parse(value) }) },
    schema,
  };
}

/** @param id with a `title`, which is the name of the parameter in the OpenAPI document */
function idSchema<Value>(id: JsonSchema, parse: (value: unknown) => Value): InputSchema<Value> {
  return inputSchema({ properties: { id: { type: "integer", ...id } } }, parse);
}

/**
 * Reads an unsigned integer in canonical base 10.
 * @returns `NaN` for any other text. Values above 2^53 are rounded: compare before use
 */
export function parseUnsigned(text: string): number {
  return /^(?:0|[1-9]\d*)$/.test(text) ? Number(text) : Number.NaN;
}

/**
 * The path of a URL. `new URL` is not used, because it throws if `Host` is invalid.
 * @returns the whole URL up to the query if it has no scheme
 */
export function pathOf(url: string): string {
  const authority = /^https?:\/\//.exec(url)?.[0].length;
  const start = authority === undefined ? 0 : url.indexOf("/", authority);
  const end = url.indexOf("?", start);
  return url.slice(start, end === -1 ? undefined : end);
}

/** Replaces a valid id that is larger than any assigned one. No record has it. */
const UNUSED_ID = 0;

/** `/users/:id`: a positive integer in canonical base 10, of any length. */
export const user_params = idSchema(
  { title: "UserId", description: "The id of the user, in canonical base 10", minimum: 1 },
  (params): { id: number } => {
    const id = parseUnsigned((params as { id: string }).id);
    if (!(id > 0)) failField("id", "must be a positive integer");
    return { id: id > Number.MAX_SAFE_INTEGER ? UNUSED_ID : id };
  },
);

const MIN_INT64 = -(2n ** 63n);
const MAX_INT64 = 2n ** 63n - 1n;

/** `/orders/:id`: a 64-bit integer in base 10. A sign and leading zeros are allowed, as in Go's `ParseInt`. */
export const order_params = idSchema(
  {
    title: "OrderId",
    description: "The id of the order, in base 10. A sign and leading zeros are allowed",
    format: "int64",
  },
  (params): { id: number } => {
    const { id: text } = params as { id: string };
    if (!/^[+-]?\d+$/.test(text)) fail("invalid_order_id", "invalid order id");
    const id = BigInt(text.replace("+", ""));
    if (id < MIN_INT64 || id > MAX_INT64) fail("invalid_order_id", "invalid order id");
    return { id: id < 1n || id > Number.MAX_SAFE_INTEGER ? UNUSED_ID : Number(id) };
  },
);
