import { AppError, type ErrorCode, type FieldError, problemCodes } from "../../base/error.ts";
import { type ErrorKind, errorKinds } from "../../base/error-kinds.ts";
import { MAX_PROBLEMS, unknownField } from "../../base/validator.ts";
import { KEY_LIFETIME_MS } from "../../domain/idempotency.ts";
import { ENTITY_TAGS, IDEMPOTENCY_KEY } from "../input/headers.ts";
import { JSON_TYPE, type JsonSchema, PATCH_TYPES, TEXT_TYPE } from "../input/input.ts";
import { errorEnvelope, REVALIDATE } from "../output/bodies.ts";
import { hasServiceDoc, serviceDoc } from "../output/error-responses.ts";

export function ref(kind: "schemas" | "headers" | "responses", name: string): JsonSchema {
  return { $ref: `#/components/${kind}/${name}` };
}

export const text = { type: "string" };

export function object(properties: JsonSchema, optional: readonly string[] = []): JsonSchema {
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return { type: "object", properties, required };
}

function header(description: string, schema: JsonSchema, example?: unknown): JsonSchema {
  return { description, required: true, schema: { ...text, ...schema }, example };
}

function optionalHeader(...fields: Parameters<typeof header>): JsonSchema {
  return { ...header(...fields), required: false };
}

export function headers(): Record<string, JsonSchema> {
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
      '</api/v1/users?limit=50&offset=50>; rel="next"',
    ),
    ServiceDoc: header("The interactive reference (RFC 8631)", { const: serviceDoc.link }),
    IdempotentReplayed: optionalHeader(
      "Present if this is the stored response to an earlier request",
      { const: "true" },
    ),
    Age: optionalHeader(
      "From a standby: how many seconds the response is behind the primary, at most (RFC 9111)",
      { type: "integer" },
      1,
    ),
    RetryAfter: header("The time to wait before a retry, in seconds", { type: "integer" }, 1),
    Allow: header("The methods of the path", {}, "GET, HEAD, POST"),
    AcceptPatch: optionalHeader("Of PATCH: the media types that it accepts (RFC 5789)", {
      const: PATCH_TYPES,
    }),
  };
}

export function withCommonHeaders(own: JsonSchema): JsonSchema {
  return {
    "X-Request-Id": ref("headers", "RequestId"),
    "Cache-Control": ref("headers", "NoStore"),
    ...own,
  };
}

function parameter(name: string, description: string, schema: JsonSchema): JsonSchema {
  return { name, in: "header", description, schema: { ...text, ...schema } };
}

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
    const effect = `for at least ${hours} hours, the same request with the same key returns the first response`;
    const schema = { pattern: IDEMPOTENCY_KEY.source };
    found.push(parameter("Idempotency-Key", `Makes a retry safe: ${effect}`, schema));
  }
  return found;
}

const invalid: FieldError = {
  field: "nmae",
  code: "not_allowed",
  problem: unknownField,
  allowed: ["email", "reference", "name", "metadata"],
};

export function errorSchemas(): Record<string, JsonSchema> {
  const kinds: [string, ErrorKind][] = Object.entries(errorKinds);
  const codes = kinds.flatMap(([code, { text }]) => (text === undefined ? code : []));
  const code = { ...text, examples: codes, description: "A stable identifier for programs" };
  const problems = {
    type: "array",
    items: ref("schemas", "FieldError"),
    description: `The problems, if the code is \`validation_failed\`: the first ${MAX_PROBLEMS}`,
  };
  const allowed = {
    description:
      "What is allowed instead: of `invalid_status_change` an array of statuses; of `invalid_refund` an object with `min` and `max`; of a page that is too large an object with the largest `limit`",
    examples: [["paid", "canceled"], { limit: 50 }, { min: 500, max: 3998 }],
  };
  const description = "Of a `range` or a `length`";
  const bound = { type: "integer", format: "int64", description };
  const fieldError = {
    field: { ...text, examples: ["items[0].quantity"] },
    code: { ...text, examples: problemCodes, description: "The kind of the problem" },
    problem: { ...text, description: "For people. It may change" },
    min: bound,
    max: bound,
    allowed: {
      type: "array",
      items: text,
      description: "Of `not_allowed`: what is allowed instead",
    },
  };
  return {
    FieldError: object(fieldError, ["min", "max", "allowed"]),
    Error: object({
      data: { type: "null" },
      error: { ...text, description: "A message for people. It may change" },
      meta: object({ code, problems, allowed }, ["problems", "allowed"]),
    }),
  };
}

function errorContent(codes: readonly ErrorCode[]): Record<string, JsonSchema> {
  const content: Record<string, JsonSchema> = {};
  const examples: Record<string, JsonSchema> = {};
  for (const code of codes) {
    const { text: body, example = "", allowed }: ErrorKind = errorKinds[code];
    if (body !== undefined) {
      content[TEXT_TYPE] = { schema: { ...text, const: body }, example: body };
      continue;
    }
    const problems = code === "validation_failed" ? [invalid] : [];
    examples[code] = { value: errorEnvelope(new AppError(code, example, { problems, allowed })) };
    content[JSON_TYPE] = { schema: ref("schemas", "Error"), examples };
  }
  return content;
}

/** @param codes all with the same status */
export function errorResponseDoc(codes: readonly ErrorCode[]): JsonSchema {
  const kinds = codes.map((code): ErrorKind => errorKinds[code]);
  const has = (field: string) => kinds.some(({ headers }) => headers?.[field] !== undefined);
  return {
    description: kinds.map(({ meaning }) => meaning).join("; or: "),
    headers: withCommonHeaders({
      ...(has("www-authenticate") && {
        "WWW-Authenticate": header("The scheme, and what the token lacks (RFC 6750)", {}),
      }),
      ...(kinds.some(({ status }) => hasServiceDoc(status)) && {
        Link: ref("headers", "ServiceDoc"),
      }),
      ...(has("retry-after") && { "Retry-After": ref("headers", "RetryAfter") }),
      ...(codes.includes("method_not_allowed") && { Allow: ref("headers", "Allow") }),
      ...(codes.includes("unsupported_media_type") && {
        "Accept-Patch": ref("headers", "AcceptPatch"),
      }),
    }),
    content: errorContent(codes),
  };
}
