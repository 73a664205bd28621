/** The headers and parameters of the OpenAPI document. */
import { KEY_LIFETIME_MS } from "../idempotency.ts";
import { docs_path, PATCH_TYPES, REVALIDATE } from "./envelope.ts";
import { REQUEST_ID } from "./lifecycle.ts";
import { integer, type Json, ref } from "./openapi.schemas.ts";
import { ENTITY_TAGS, IDEMPOTENCY_KEY } from "./preconditions.ts";

export function header(description: string, schema: Json, example: unknown): Json {
  return { description, required: true, schema, example };
}

export function headers(): Json {
  const text = { type: "string" };
  return {
    RequestId: header(
      "The id of the request, which is also in the log of the server. It is the client's `X-Request-Id`, if that is valid",
      { ...text, pattern: REQUEST_ID.source },
      "7f3c2b1a",
    ),
    NoStore: header("The response must not be stored", { ...text, const: "no-store" }, "no-store"),
    Revalidate: header(
      "Private. Must be revalidated before reuse",
      { ...text, const: REVALIDATE },
      REVALIDATE,
    ),
    ETag: header(
      "The `version` of the record, for `If-Match` and `If-None-Match`",
      { ...text, pattern: '^"[1-9]\\d*"$' },
      '"1"',
    ),
    Location: header(
      "The path of the new record",
      { ...text, format: "uri-reference" },
      "/api/v1/users/1",
    ),
    Link: header(
      "The URLs of the `first`, `prev`, `next` and `last` page, if they exist (RFC 8288)",
      text,
      '</api/v1/users?limit=50&offset=50>; rel="next"',
    ),
    ServiceDoc: header(
      "The interactive reference (RFC 8631)",
      { ...text, const: `<${docs_path}>; rel="service-doc"` },
      `<${docs_path}>; rel="service-doc"`,
    ),
    IdempotentReplayed: {
      ...header(
        "Present if this is the stored response to an earlier request",
        { ...text, const: "true" },
        "true",
      ),
      required: false,
    },
    RetryAfter: header("The time to wait before a retry, in seconds", integer(0), 1),
    Allow: header("The methods of the path", text, "GET, HEAD, POST"),
    AcceptPatch: header(
      "Media types that PATCH accepts (RFC 5789)",
      { ...text, const: PATCH_TYPES },
      PATCH_TYPES,
    ),
  };
}

export function parameter(name: string, description: string, schema: Json, more: Json = {}): Json {
  return { name, in: "header", description, schema, ...more };
}

export function parameters(): Json {
  const text = { type: "string" };
  const hours = KEY_LIFETIME_MS / 3_600_000;
  const key = { ...text, pattern: IDEMPOTENCY_KEY.source };
  const list = "entity tags, separated by commas, or `*`";
  const tags = { ...text, pattern: ENTITY_TAGS.source, examples: ['"1"'] };
  return {
    RequestId: parameter(
      "X-Request-Id",
      "Id of the request, 1 to 128 visible ASCII characters. If it is missing or anything else, the server generates one.",
      { ...text, examples: ["7f3c2b1a"] },
    ),
    IdempotencyKey: parameter(
      "Idempotency-Key",
      `Makes a retry safe: for ${hours} hours, the same request with the same key returns the first response`,
      key,
    ),
    UnusedIdempotencyKey: parameter(
      "Idempotency-Key",
      "Validated, but without effect on this method. Use `If-Match` to make a retry safe",
      key,
    ),
    IfMatch: parameter(
      "If-Match",
      `Returns 412 unless the record has one of these versions: ${list}. Weak tags never match.`,
      tags,
    ),
    IfNoneMatch: parameter(
      "If-None-Match",
      `Returns 304 if the record has one of these versions: ${list}`,
      tags,
    ),
    ChangeIfNoneMatch: parameter(
      "If-None-Match",
      `Returns 412, and changes nothing, if the record has one of these versions: ${list}`,
      tags,
    ),
    UserId: parameter(
      "id",
      "The id of the user, in canonical base 10",
      { type: "integer", minimum: 1 },
      { in: "path", required: true, example: 1 },
    ),
    OrderId: parameter(
      "id",
      "The id of the order, in base 10. A sign and leading zeros are allowed",
      { type: "integer", format: "int64" },
      { in: "path", required: true, example: 1 },
    ),
  };
}

/** @returns the headers of a response: its own, and those of every response */
export function withCommonHeaders(own: Json, cache: "NoStore" | "Revalidate" = "NoStore"): Json {
  return {
    "X-Request-Id": ref("headers", "RequestId"),
    "Cache-Control": ref("headers", cache),
    ...own,
  };
}
