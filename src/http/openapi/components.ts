import type { ErrorCode } from "../../base/error.ts";
import { KEY_LIFETIME_MS } from "../../domain/idempotency.ts";
import { ENTITY_TAGS } from "../input/entity-tags.ts";
import { IDEMPOTENCY_KEY } from "../input/idempotency-key.ts";
import type { JsonSchema } from "../input/input.ts";
import { PATCH_TYPES } from "../input/media-types.ts";
import { REVALIDATE } from "../output/bodies.ts";
import { serviceDoc } from "../output/errors.ts";

export function ref(kind: "schemas" | "headers" | "responses", name: string): JsonSchema {
  return { $ref: `#/components/${kind}/${name}` };
}

export const text = { type: "string" };

export function object(properties: JsonSchema, optional: readonly string[] = []): JsonSchema {
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return { type: "object", properties, required };
}

export function header(description: string, schema: JsonSchema, example?: unknown): JsonSchema {
  return { description, required: true, schema: { ...text, ...schema }, example };
}

export function headers(): Record<string, JsonSchema> {
  const pages = '</api/v1/users?limit=50&offset=50>; rel="next"';
  return {
    RequestId: header(
      "The id of the request, which is also in the log of the server. It is the client's `X-Request-Id`, if that is valid",
      {},
      "7f3c2b1a",
    ),
    NoStore: header("The response must not be stored", { const: "no-store" }),
    Revalidate: header("Private. Must be revalidated before reuse", { const: REVALIDATE }),
    ETag: header("The `version` of the record, for `If-Match` and `If-None-Match`", {}, '"1"'),
    Location: header("The path of the new record", { format: "uri-reference" }, "/api/v1/users/1"),
    Link: header(
      "The URLs of the `first`, `prev`, `next` and `last` page, if they exist (RFC 8288)",
      {},
      pages,
    ),
    ServiceDoc: header("The interactive reference (RFC 8631)", { const: serviceDoc.link }),
    IdempotentReplayed: {
      ...header("Present if this is the stored response to an earlier request", { const: "true" }),
      required: false,
    },
    Age: {
      ...header(
        "From a standby: how many seconds the response is behind the primary, at most (RFC 9111)",
        { type: "integer" },
        1,
      ),
      required: false,
    },
    RetryAfter: header("The time to wait before a retry, in seconds", { type: "integer" }, 1),
    Allow: header("The methods of the path", {}, "GET, HEAD, POST"),
    AcceptPatch: {
      ...header("Of PATCH: the media types that it accepts (RFC 5789)", { const: PATCH_TYPES }),
      required: false,
    },
  };
}

export function withCommonHeaders(own: JsonSchema = {}): JsonSchema {
  return {
    "X-Request-Id": ref("headers", "RequestId"),
    "Cache-Control": ref("headers", "NoStore"),
    ...own,
  };
}

function parameter(name: string, description: string, schema: JsonSchema): JsonSchema {
  return { name, in: "header", description, schema: { ...text, ...schema } };
}

/** They follow from the errors of a route. */
export function headerParameters(method: string, errors: readonly ErrorCode[]): JsonSchema[] {
  const found: JsonSchema[] = [];
  if (errors.includes("version_mismatch")) {
    const matches =
      "the record has one of these versions: entity tags, separated by commas, or `*`";
    // Not every generator escapes quotes.
    const pattern = ENTITY_TAGS.source.replaceAll('"', String.raw`\x22`);
    const schema = { pattern, examples: ['"1"'] };
    const result = method === "GET" ? "304" : "412, and changes nothing,";
    const weak = "Weak tags never match.";
    found.push(parameter("If-Match", `Returns 412 unless ${matches}. ${weak}`, schema));
    found.push(parameter("If-None-Match", `Returns ${result} if ${matches}`, schema));
  }
  if (errors.includes("idempotency_key_reused")) {
    const hours = KEY_LIFETIME_MS / 3_600_000;
    const effect = `for ${hours} hours, the same request with the same key returns the first response`;
    const schema = { pattern: IDEMPOTENCY_KEY.source };
    found.push(parameter("Idempotency-Key", `Makes a retry safe: ${effect}`, schema));
  }
  return found;
}
