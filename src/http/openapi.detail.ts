/** Describes routes: for the OpenAPI document, and for the types of clients. */
import type { ErrorCode } from "../error.ts";
import { page_query } from "../page.ts";
import type { ErrorEnvelope } from "./envelope.ts";
import type { error_responses } from "./errors.ts";
import { integer, type Json, object, ref } from "./openapi.components.ts";
import type { InputSchema } from "./params.ts";

export interface SuccessResponse {
  readonly description: string;
  /** In addition to `X-Request-Id` and `Cache-Control: no-store`, or instead of them. */
  readonly headers?: Json;
  /** The media type. By default, that of JSON. */
  readonly type?: string;
  /** The schema of the body. Those with a `title` become components. None if there is no body. */
  readonly schema?: Json;
  readonly example?: unknown;
}

/** What the code of a route does not say by itself. */
export interface Detail {
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  /** Empty if the route is public. By default, it needs a token. */
  readonly security?: readonly [];
  /** In addition to those that follow from the schemas and the errors. */
  readonly parameters?: readonly Json[];
  /** What each filter of a list selects. */
  readonly filters?: Readonly<Record<string, string>>;
  /** An example of the request body. */
  readonly example?: Json;
  /** By status. The 304 of a record follows from the errors. */
  readonly responses: Readonly<Record<number, SuccessResponse>>;
  /** In addition to `common_errors`. */
  readonly errors?: readonly ErrorCode[];
}

/** The errors of all routes; and of those that need a token, may not be called with a read-only one, or have a body. */
export const common_errors = {
  all: ["invalid", "method_not_allowed", "operator"],
  token: [
    "unauthorised",
    "invalid_token",
    "too_many_requests",
    "too_many_invalid_tokens",
    "unavailable",
  ],
  write: ["read_only_token"],
  body: ["payload_too_large", "unsupported_media_type"],
} as const satisfies Readonly<Record<string, readonly ErrorCode[]>>;

interface DocumentedHook {
  readonly detail: Detail;
  readonly body?: unknown;
}

type CommonError<Condition extends keyof typeof common_errors> =
  (typeof common_errors)[Condition][number];

type ErrorOf<Hook extends DocumentedHook> =
  | CommonError<"all">
  | (Hook["detail"] extends { readonly security: readonly [] }
      ? never
      : CommonError<"token" | "write">)
  | (Hook extends { readonly body: unknown } ? CommonError<"body"> : never)
  | (Hook["detail"] extends { readonly errors: readonly (infer Code extends ErrorCode)[] }
      ? Code
      : never);

type Template<Code extends ErrorCode> = (typeof error_responses)[Code];

type BodyOf<Of> = Of extends { readonly text: infer Text }
  ? Text
  : Of extends { readonly code: infer Code extends string }
    ? ErrorEnvelope<Code>
    : never;

/** Schemas of the error responses, by status. */
type ErrorSchemas<Code extends ErrorCode> = {
  readonly [Status in Template<Code>["status"]]: InputSchema<
    BodyOf<Extract<Template<Code>, { readonly status: Status }>>
  >;
};

/**
 * Adds the types of the errors to those of a route, for typed clients. There is no such schema at run time:
 * validating our own responses would cost CPU time.
 */
export function documented<const Hook extends DocumentedHook>(hook: Hook) {
  return hook as unknown as Omit<Hook, "detail"> & {
    readonly response: ErrorSchemas<ErrorOf<Hook>>;
  };
}

/** Describes an `Envelope`. */
export function enveloped(description: string, data: Json, example: unknown, headers: Json = {}) {
  const schema = object({ data, error: { type: "null" } });
  return { description, headers, schema, example: { data: example, error: null } };
}

export const record_headers = {
  "Cache-Control": ref("headers", "Revalidate"),
  ETag: ref("headers", "ETag"),
};

/** Describes a `recordResponse`. */
export function oneRecord(description: string, record: Json, example: unknown) {
  return enveloped(description, record, example, record_headers);
}

/** Describes a `createdResponse`. */
export function createdRecord(record: Json, example: unknown) {
  const description =
    "The new record. With the `Idempotency-Key` of an earlier request: the record created then";
  return enveloped(description, record, example, {
    ...record_headers,
    Location: ref("headers", "Location"),
    "Idempotent-Replayed": ref("headers", "IdempotentReplayed"),
  });
}

/** Describes a `pageResponse`. */
export function pageOf(record: Json, example: unknown) {
  const { minimum = 0, maximum } = page_query.limit;
  const total = {
    ...integer(0),
    description: "The exact number of records that match the filters",
  };
  const meta = object({ total, limit: integer(minimum, maximum), offset: integer(0) });
  const data = { type: "array", items: record };
  return {
    description: "One page. Past the end, `data` is empty and `total` is still correct",
    headers: { Link: ref("headers", "Link") },
    schema: object({ data, error: { type: "null" }, meta: { title: "PageMeta", ...meta } }),
    example: { data: [example], error: null, meta: { total: 1, limit: 50, offset: 0 } },
  };
}
