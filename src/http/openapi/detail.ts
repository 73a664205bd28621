import type { ErrorCode } from "../../base/error.ts";
import { SafeInteger } from "../../base/schema.ts";
import { pageQuery } from "../../domain/page.ts";
import type { Scope } from "../../domain/token.ts";
import type { InputSchema, JsonSchema } from "../input/input.ts";
import { object, ref } from "./components.ts";

interface SuccessResponse {
  /** By default, 200. */
  readonly status?: 201;
  readonly description: string;
  /** In addition to `X-Request-Id` and `Cache-Control: no-store`, or instead of them. */
  readonly headers?: JsonSchema;
  /** By default, that of JSON. */
  readonly type?: string;
  readonly schema: JsonSchema;
  readonly example?: unknown;
}

interface Documented {
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly example?: JsonSchema;
  /** The 304 of a record follows from the errors. */
  readonly response: SuccessResponse;
  /** In addition to `commonErrors`. */
  readonly errors?: readonly ErrorCode[];
}

interface Checks {
  /** By default, a route needs a token. */
  readonly public?: true;
  /** What the token must have, if it needs more than to be valid. */
  readonly scopes?: readonly Scope[];
  readonly params?: InputSchema<unknown>;
  /** By default, every parameter is rejected. */
  readonly query?: InputSchema<unknown>;
  /** By default, the request body is ignored. */
  readonly body?: InputSchema<unknown>;
}

/** A route without a response is not in the OpenAPI document. */
export type RouteDefinition = Checks & (Documented | { readonly response?: undefined });

export interface RouteEntry<Route = RouteDefinition> {
  readonly method: string;
  readonly path: string;
  readonly tags: readonly string[];
  readonly route: Route;
}

/** The errors of all routes; and of those that need a token, scopes, or have a body. */
export const commonErrors = {
  all: ["validation_failed", "method_not_allowed", "expectation_failed", "internal"],
  token: ["unauthorised", "invalid_token", "too_many_requests", "unavailable"],
  scopes: ["insufficient_scope"],
  body: ["payload_too_large", "unsupported_media_type"],
} as const satisfies Readonly<Record<string, readonly ErrorCode[]>>;

export function envelopeDoc(
  description: string,
  data: JsonSchema,
  example: unknown,
  headers: JsonSchema = {},
) {
  const schema = object({ data, error: { type: "null" } });
  return { description, headers, schema, example: { data: example, error: null } };
}

const recordHeaders = {
  "Cache-Control": ref("headers", "Revalidate"),
  ETag: ref("headers", "ETag"),
};

export function recordDoc(description: string, record: JsonSchema, example: unknown) {
  return envelopeDoc(description, record, example, recordHeaders);
}

export function createdDoc(record: JsonSchema, example: unknown) {
  const headers = { ...recordHeaders, Location: ref("headers", "Location") };
  return { ...envelopeDoc("The new record", record, example, headers), status: 201 as const };
}

/** @param more what else `meta` has, and an example of it */
export function pageDoc(
  record: JsonSchema,
  example: unknown,
  more?: { readonly properties: JsonSchema; readonly example: object },
) {
  const { limit, offset } = pageQuery;
  const total = SafeInteger(0, "The exact number of records that match the filters");
  const meta = object({ total, limit, offset, ...more?.properties });
  const title = more === undefined ? "PageMeta" : `${record["title"]}PageMeta`;
  const metaExample = { total: 1, limit: 50, offset: 0, ...more?.example };
  const data = { type: "array", items: record };
  return {
    description: "One page. Past the end, `data` is empty and `total` is still correct",
    headers: { Link: ref("headers", "Link") },
    schema: object({ data, error: { type: "null" }, meta: { title, ...meta } }),
    example: { data: [example], error: null, meta: metaExample },
  };
}
