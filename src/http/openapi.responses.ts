/** The errors of the OpenAPI document, from the table of `errors.ts`. */
import type { ErrorCode } from "../error.ts";
import { errorEnvelope, JSON_TYPE, TEXT_TYPE } from "./envelope.ts";
import { error_responses, type ResponseTemplate } from "./errors.ts";
import { header, withCommonHeaders } from "./openapi.headers.ts";
import { type Json, mapValues, ref } from "./openapi.schemas.ts";

/** The meaning of an error code, and examples of its message. */
type ErrorDoc = readonly [description: string, ...messages: readonly string[]];

const errorDocs = (): Record<ErrorCode, ErrorDoc> => ({
  invalid: ["The request is not valid: `meta.problems` lists the reasons", "email is required"],
  invalid_order_id: ["The order id is not a 64-bit integer"],
  unauthorised: ["The request has no token"],
  invalid_token: ["The token is unknown, expired or revoked"],
  read_only_token: ["The token may only read", "this token may only read"],
  not_found: ["The user does not exist", "user not found"],
  order_not_found: ["The order does not exist"],
  method_not_allowed: [
    "The path does not have this method: see `Allow`",
    "method DELETE is not allowed here, use GET, HEAD, POST",
  ],
  email_taken: ["Another user has the email, in any case", "email is already taken"],
  user_has_orders: ["The user has orders", "user has orders"],
  invalid_status_change: [
    "The status cannot change to this one",
    "cannot change status from shipped to paid; allowed: delivered",
  ],
  version_mismatch: [
    "`If-Match` does not match the record, or `If-None-Match` does",
    "the record has changed: it is at version 2",
    "If-Match never matches a weak entity tag: send the tag without W/",
    "If-None-Match matches the record: it is at version 2",
  ],
  payload_too_large: [
    "The request body is larger than the limit of this server (default: 65,536 bytes)",
    "the request body must be at most 65536 bytes",
  ],
  unsupported_media_type: [
    "The request body is compressed, or its `Content-Type` is not JSON in UTF-8",
    "the request body must be application/json: set the Content-Type header",
    "the request body must be UTF-8",
  ],
  key_reused: [
    "The `Idempotency-Key` belongs to a different request",
    "the idempotency key was used for another request",
  ],
  too_many_requests: ["The token exceeds the rate limit", "too many requests with this token"],
  unavailable: [
    "The database cannot be used at the moment, or the server is shutting down",
    "the database cannot be written at the moment",
  ],
  token_name_taken: ["An error of the command line"],
  damaged: ["The request needs a damaged part of the database file"],
  operator: ["An error of the server. Its log has the details, with the id of the request"],
});

/** The error responses of operations. Codes with the same status in one operation share a response. */
const response_codes = {
  Invalid: ["invalid"],
  InvalidOrder: ["invalid", "invalid_order_id"],
  Unauthorised: ["unauthorised", "invalid_token"],
  InsufficientScope: ["read_only_token"],
  UserNotFound: ["not_found"],
  OrderNotFound: ["order_not_found"],
  MethodNotAllowed: ["method_not_allowed"],
  EmailTaken: ["email_taken"],
  UserHasOrders: ["user_has_orders"],
  InvalidStatusChange: ["invalid_status_change"],
  VersionMismatch: ["version_mismatch"],
  TooLarge: ["payload_too_large"],
  UnsupportedType: ["unsupported_media_type"],
  UnsupportedPatchType: ["unsupported_media_type"],
  KeyReused: ["key_reused"],
  TooManyRequests: ["too_many_requests"],
  Internal: ["operator"],
  Unavailable: ["unavailable"],
} satisfies Readonly<Record<string, readonly [ErrorCode, ...ErrorCode[]]>>;

export type ErrorResponseName = keyof typeof response_codes;

export function statusOf(name: ErrorResponseName): number {
  return error_responses[response_codes[name][0]].status;
}

/** @returns the name and the value of an example */
function errorExample(error_code: ErrorCode, code: string, message: string): [string, Json] {
  const [field = "", ...problem] = message.split(" ");
  const invalid = { field, problem: problem.join(" ") };
  const value =
    error_code === "invalid"
      ? errorEnvelope(code, `Validation failed: ${message}`, [invalid])
      : errorEnvelope(code, message);
  return [message.replace(/\W+/g, "_"), { value }];
}

/** The schema of an error with this code. */
function errorSchema(error_code: ErrorCode, code: string): Json {
  // Tools reject examples with members that only one part of an `allOf` has.
  const problems = { type: "array", items: ref("schemas", "FieldError") };
  const properties = {
    code: { type: "string", enum: [code] },
    ...(error_code === "invalid" && { problems }),
  };
  const meta = { type: "object", properties };
  return { allOf: [ref("schemas", "Error"), { type: "object", properties: { meta } }] };
}

function contentOf(error_code: ErrorCode, [, ...messages]: ErrorDoc): [string, Json] {
  const template: ResponseTemplate = error_responses[error_code];
  if ("text" in template) {
    const { text } = template;
    return [TEXT_TYPE, { schema: { type: "string", const: text }, example: text }];
  }
  const { code } = template;
  const examples = messages.map((message) => errorExample(error_code, code, message));
  return [
    JSON_TYPE,
    { schema: errorSchema(error_code, code), examples: Object.fromEntries(examples) },
  ];
}

function documentedError(codes: readonly ErrorCode[]): Json {
  const docs = errorDocs();
  const fields = codes.map((code) => (error_responses[code] as ResponseTemplate).headers ?? {});
  const challenges = fields.flatMap((field) => field["www-authenticate"] ?? []);
  const has = (name: string) => fields.some((field) => field[name] !== undefined);
  return {
    description: codes.map((code) => docs[code][0]).join("; or: "),
    headers: withCommonHeaders({
      ...(challenges.length > 0 && {
        "WWW-Authenticate": header(
          "The authentication scheme (RFC 6750)",
          { type: "string", enum: challenges },
          challenges[0],
        ),
      }),
      ...(has("link") && { Link: ref("headers", "ServiceDoc") }),
      ...(has("retry-after") && { "Retry-After": ref("headers", "RetryAfter") }),
    }),
    content: Object.fromEntries(codes.map((code) => contentOf(code, docs[code]))),
  };
}

export function responses(): Json {
  const unsupported = documentedError(response_codes.UnsupportedType);
  return {
    ...mapValues<readonly ErrorCode[]>(response_codes, documentedError),
    UnsupportedPatchType: {
      ...unsupported,
      headers: withCommonHeaders({ "Accept-Patch": ref("headers", "AcceptPatch") }),
    },
    MethodNotAllowed: {
      ...documentedError(response_codes.MethodNotAllowed),
      headers: withCommonHeaders({ Allow: ref("headers", "Allow") }),
    },
  };
}
