/** What stands in the URL and in the header fields, checked and typed. */
import { fail, failField } from "../error.ts";
import { fingerprint, type IdempotencyKey } from "../idempotency.ts";
import type { EntityTags, Preconditions } from "../precondition.ts";
import { createValidator, displayField, Empty, type Schema, type ValueOf } from "../schema.ts";

/**
 * A check in the form that Elysia takes for any part of a request. Elysia's own TypeBox validation
 * is not used: it drops unknown fields, coerces `"5"` and `0x10`, and stringifies what it refuses,
 * which for a hostile body of 60 KB takes half a second.
 * @see https://standardschema.dev
 */
export interface InputSchema<Value> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: "user-api";
    readonly validate: (value: unknown) => { readonly value: Value };
    readonly types?: { readonly input: Value; readonly output: Value };
  };
}

/** @param parse returns the typed value or throws an AppError */
export function inputSchema<Value>(parse: (value: unknown) => Value): InputSchema<Value> {
  return {
    "~standard": { version: 1, vendor: "user-api", validate: (value) => ({ value: parse(value) }) },
  };
}

/** The part of a URL after its authority, up to the query. A strange Host can make it all path. */
export function pathOf(url: string): string {
  const authority = /^https?:\/\//.exec(url)?.[0].length;
  const start = authority === undefined ? 0 : url.indexOf("/", authority);
  const end = url.indexOf("?", start);
  return url.slice(start, end === -1 ? undefined : end);
}

/** Canonical base 10 without sign, else `NaN`. Above 2^53 it rounds: compare before use. */
function parseUnsigned(text: string): number {
  return /^(?:0|[1-9]\d*)$/.test(text) ? Number(text) : Number.NaN;
}

/** Stands for an id that is well written, but beyond all that we give: no record has it. */
const UNUSED_ID = 0;

/** `/users/:id`, a positive integer of any length. */
export const user_params = inputSchema((params): { id: number } => {
  const id = parseUnsigned((params as { id: string }).id);
  if (!(id > 0)) failField("id", "must be a positive integer");
  return { id: id > Number.MAX_SAFE_INTEGER ? UNUSED_ID : id };
});

const MIN_INT64 = -(2n ** 63n);
const MAX_INT64 = 2n ** 63n - 1n;

/** `/orders/:id`: a base-10 64-bit integer, sign and leading zeros allowed, as Go's `ParseInt`. */
export const order_params = inputSchema((params): { id: number } => {
  const { id: text } = params as { id: string };
  if (!/^[+-]?\d+$/.test(text)) fail("invalid_order_id", "invalid order id");
  const id = BigInt(text.replace("+", ""));
  if (id < MIN_INT64 || id > MAX_INT64) fail("invalid_order_id", "invalid order id");
  return { id: id < 1n || id > Number.MAX_SAFE_INTEGER ? UNUSED_ID : Number(id) };
});

function decodePercent(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/**
 * The query as it stands in the URL. A plus is a plus (RFC 3986): emails have it, and no value here
 * has spaces.
 * @throws {AppError} invalid when a name comes twice or an escape is not UTF-8
 */
export function readQuery(url: string): Record<string, string> {
  const start = url.indexOf("?");
  if (start === -1) return {};
  const values = new Map<string, string>();
  for (const part of url.slice(start + 1).split("&")) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    const name = decodePercent(equals === -1 ? part : part.slice(0, equals));
    const value = decodePercent(equals === -1 ? "" : part.slice(equals + 1));
    if (name === null) failField("query", "must be percent-encoded UTF-8");
    if (value === null) failField(displayField(name), "must be percent-encoded UTF-8");
    if (values.has(name)) failField(displayField(name), "is given more than once");
    values.set(name, value);
  }
  return Object.fromEntries(values);
}

/** Fills in defaults and reads integers, as the schema says; what does not fit is left for the check. */
function coerceQuery(schema: Schema, query: Record<string, string>): Record<string, unknown> {
  const values: Record<string, unknown> = { ...query };
  for (const [name, property] of Object.entries<Schema>(schema["properties"])) {
    const text = query[name];
    if (text === undefined) {
      if (property.default !== undefined) values[name] = property.default;
    } else if (property["type"] === "integer") {
      values[name] = parseUnsigned(text);
    }
  }
  return values;
}

/** The query parameters of this schema and no others. */
export function querySchema<Of extends Schema>(schema: Of) {
  const validate = createValidator(schema);
  const takes_cursor = Object.hasOwn(schema["properties"], "after");
  // Most requests have no query at all: what that means is settled once.
  const default_query = coerceQuery(schema, {}) as ValueOf<Of>;
  // What arrives is the URL: `lifecycle` puts it in the place of Elysia's parsed query.
  return inputSchema((value) => {
    const url = String(value);
    if (!url.includes("?")) return default_query;
    const given = readQuery(url);
    if (takes_cursor && given["after"] !== undefined && given["offset"] !== undefined) {
      failField("offset", "cannot be combined with after");
    }
    return validate(coerceQuery(schema, given));
  });
}

/** For a route that takes no query parameters at all. */
export const no_query = querySchema(Empty);

export const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;

/** @throws {AppError} invalid if there is a key and it is malformed */
export function requireIdempotencyKey(key: string | null): void {
  if (key === null || IDEMPOTENCY_KEY.test(key)) return;
  failField("Idempotency-Key", "must be 1 to 255 visible ASCII characters");
}

/**
 * `Idempotency-Key` of a POST.
 * @param key as `requireIdempotencyKey` lets it through
 * @param owner hash of the token: whose key it is
 * @returns `null` when the client sent none
 */
export function readIdempotencyKey(
  key: string | undefined,
  owner: string,
  path: string,
  body: unknown,
): IdempotencyKey | null {
  if (key === undefined) return null;
  return { owner, key, fingerprint: fingerprint("POST", path, body) };
}

/** @see RFC 9110 §8.8.3 */
const ENTITY_TAG = /(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"/g;
const TAG = ENTITY_TAG.source;
/** `*`, or entity tags separated by commas; a list may have empty elements (RFC 9110 §5.6.1.2). */
export const ENTITY_TAGS = new RegExp(
  `^(?:[ \\t]*\\*[ \\t]*|[ \\t,]*${TAG}(?:[ \\t]*,[ \\t,]*${TAG})*[ \\t,]*)$`,
);

/** @throws {AppError} invalid */
function readEntityTags(field: string, value: string | null | undefined): EntityTags | null {
  if (value === undefined || value === null) return null;
  if (!ENTITY_TAGS.test(value)) failField(field, "must be * or a list of entity tags");
  if (value.trim() === "*") return "*";
  return [...value.matchAll(ENTITY_TAG)].map(([, weak, tag = ""]) => ({
    version: parseUnsigned(tag),
    weak: weak !== undefined,
  }));
}

/**
 * `If-Match` and `If-None-Match` of a request for one record.
 * @returns `null` if the request has neither
 * @throws {AppError} invalid
 */
export function readPreconditions(
  if_match: string | null | undefined,
  if_none_match: string | null | undefined,
): Preconditions | null {
  // Most requests have neither, and the check costs less than an object.
  if ((if_match ?? if_none_match ?? null) === null) return null;
  return {
    if_match: readEntityTags("If-Match", if_match),
    if_none_match: readEntityTags("If-None-Match", if_none_match),
  };
}
