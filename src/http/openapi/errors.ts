/** The error responses of the OpenAPI document. */
import { AppError, type ErrorCode, type FieldError, problemCodes } from "../../base/error.ts";
import { MAX_PROBLEMS, unknownField } from "../../base/validator.ts";
import type { JsonSchema } from "../input/input.ts";
import { JSON_TYPE, TEXT_TYPE } from "../input/media-types.ts";
import { errorEnvelope } from "../output/bodies.ts";
import { errorTemplates, type ResponseTemplate } from "../output/errors.ts";
import { header, object, ref, text, withCommonHeaders } from "./components.ts";

/** What an error means, and an example. Errors in plain text need none. */
type ErrorDoc = [meaning: string, message?: string, allowed?: AppError["allowed"]];

const errorDocs = {
  validation_failed: [
    "The request is not valid: `meta.problems` lists the reasons",
    "Validation failed: nmae is not allowed",
  ],
  invalid_order_id: ["The order id is not a 64-bit integer"],
  unauthorised: ["The request has no token"],
  invalid_token: ["The token is unknown, expired or revoked"],
  insufficient_scope: [
    "The token lacks a scope, which the message and the challenge name",
    "this token lacks the scope orders:write",
  ],
  expectation_failed: [
    "`Expect` is not exactly `100-continue`, in lower case",
    'Expect must be exactly "100-continue", in lower case: send the body without waiting',
  ],
  not_found: ["The user does not exist", "user not found"],
  order_not_found: ["The order does not exist"],
  method_not_allowed: [
    "The path does not have this method: see `Allow`",
    "method DELETE is not allowed here, use GET, HEAD, POST",
  ],
  email_taken: ["Another user has the email in this or another spelling", "email is already taken"],
  reference_taken: ["Another record of this kind has the reference", "reference is already taken"],
  user_has_orders: ["The user has orders", "user has orders"],
  invalid_status_change: [
    "The status cannot change to this one",
    "cannot change status from shipped to paid; allowed: delivered",
    ["delivered"],
  ],
  invalid_refund: [
    "`refunded` is less than before, or more than the total",
    "refunded must be from 500, which is refunded already, to 3998, the total",
    { min: 500, max: 3998 },
  ],
  changes_expired: [
    "Changes that follow the id in `after` are no longer kept",
    "changes before 1001 are no longer kept: synchronize again",
  ],
  changes_reset: [
    "The feed is not the one that `feed` or `after` belongs to, e.g. since a backup was restored",
    "the feed 5fHv2mQxT0 has ended: synchronize again",
  ],
  version_mismatch: [
    "`If-Match` does not match the record, or `If-None-Match` does",
    "the record has changed: it is at version 2",
  ],
  payload_too_large: [
    "The request body is larger than 65,536 bytes, or is sent in more than 1,024 chunks",
    "the request body must be at most 65536 bytes",
  ],
  unsupported_media_type: [
    "The request body is compressed, or its `Content-Type` is not JSON in UTF-8",
    "the request body must be application/json: set the Content-Type header",
  ],
  idempotency_key_reused: [
    "The `Idempotency-Key` belongs to a different request",
    "the idempotency key was used for another request",
  ],
  too_many_requests: ["The token exceeds the rate limit", "too many requests with this token"],
  unavailable: [
    "The database cannot be used at the moment, the token has too many writes in progress or too many large pages unsent, or the server is read-only, a standby or shutting down",
    "the database cannot be written at the moment",
  ],
  internal: ["An error of the server. Its log has the details, with the id of the request"],
} satisfies Partial<Record<ErrorCode, ErrorDoc>>;

/** Every operation can return it. */
const invalid: FieldError = {
  field: "nmae",
  code: "not_allowed",
  problem: unknownField,
  allowed: ["email", "reference", "name", "metadata"],
};

/** An error that a client can tell from others. */
export type DocumentedError = keyof typeof errorDocs;

export function errorSchemas(): Record<string, JsonSchema> {
  const templates: [string, ResponseTemplate][] = Object.entries(errorTemplates);
  const codes = templates.flatMap(([code, { text }]) => (text === undefined ? code : []));
  const code = { ...text, examples: codes, description: "A stable identifier for programs" };
  const problems = {
    type: "array",
    items: ref("schemas", "FieldError"),
    description: `The problems, if the code is \`validation_failed\`: the first ${MAX_PROBLEMS}`,
  };
  const allowed = {
    description:
      "What is allowed instead: of `invalid_status_change` an array of statuses; of `invalid_refund` an object with `min` and `max`; of a page that is too large an object with the largest `limit`",
    examples: [["paid", "canceled"], { limit: 163 }, { min: 500, max: 3998 }],
  };
  const bound = { type: "integer", format: "int64" };
  const fieldError = {
    field: { ...text, examples: ["items[0].quantity"] },
    code: { ...text, examples: problemCodes, description: "The kind of the problem" },
    problem: { ...text, description: "For people. It may change" },
    min: { ...bound, description: "Of a `range` or a `length`" },
    max: { ...bound, description: "Of a `range` or a `length`" },
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

/** @returns the content by media type. Its examples have the codes */
function errorContent(codes: readonly DocumentedError[]): Record<string, JsonSchema> {
  const content: Record<string, JsonSchema> = {};
  const examples: Record<string, JsonSchema> = {};
  for (const code of codes) {
    const { text: example }: ResponseTemplate = errorTemplates[code];
    if (example !== undefined) {
      content[TEXT_TYPE] = { schema: { ...text, const: example }, example };
      continue;
    }
    const [, message = "", allowed]: ErrorDoc = errorDocs[code];
    const problems = code === "validation_failed" ? [invalid] : [];
    examples[code] = { value: errorEnvelope(new AppError(code, message, { problems, allowed })) };
    content[JSON_TYPE] = { schema: ref("schemas", "Error"), examples };
  }
  return content;
}

/** @param codes all with the same status */
export function errorResponseDoc(codes: readonly DocumentedError[]): JsonSchema {
  const fields = codes.map((code) => (errorTemplates[code] as ResponseTemplate).headers ?? {});
  const has = (fieldName: string) => fields.some((field) => field[fieldName] !== undefined);
  return {
    description: codes.map((code) => errorDocs[code][0]).join("; or: "),
    headers: withCommonHeaders({
      ...(has("www-authenticate") && {
        "WWW-Authenticate": header("The scheme, and what the token lacks (RFC 6750)", {}),
      }),
      ...(has("link") && { Link: ref("headers", "ServiceDoc") }),
      ...(has("retry-after") && { "Retry-After": ref("headers", "RetryAfter") }),
      ...(codes.includes("method_not_allowed") && { Allow: ref("headers", "Allow") }),
      ...(codes.includes("unsupported_media_type") && {
        "Accept-Patch": ref("headers", "AcceptPatch"),
      }),
    }),
    content: errorContent(codes),
  };
}
