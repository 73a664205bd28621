/** All expected errors by their codes: what they mean, and the response to each. `main.ts` has the exit codes. */

export interface ErrorKind {
  readonly status: number;
  readonly meaning: string;
  /** The message, or one of several, and what it allows, also in the OpenAPI document. Errors in plain text need none. */
  readonly example?: string;
  readonly allowed?: readonly string[] | { readonly min: number; readonly max: number };
  /** In addition to those that follow from the status. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The whole body, for the errors that the contract defines as plain text. */
  readonly text?: string;
}

/** The response to any error that is not the client's. It gives no details: the log has them. */
export const internalError = { status: 500, text: "internal error" } as const;

export const errorKinds = {
  validation_failed: {
    status: 400,
    meaning: "The request is not valid: `meta.problems` lists the reasons",
    example: "Validation failed: nmae is not allowed",
  },
  invalid_order_id: {
    status: 400,
    meaning: "The order id is not a 64-bit integer",
    text: "invalid order id",
  },
  unauthorised: {
    status: 401,
    meaning: "The request has no token",
    headers: { "www-authenticate": "Bearer" },
    text: "unauthorised",
  },
  invalid_token: {
    status: 401,
    meaning: "The token is unknown, expired or revoked",
    headers: { "www-authenticate": 'Bearer error="invalid_token"' },
    text: "unauthorised",
  },
  insufficient_scope: {
    status: 403,
    meaning: "The token lacks a scope, which the message and the challenge name",
    example: "this token lacks the scope orders:write",
    headers: { "www-authenticate": 'Bearer error="insufficient_scope"' },
  },
  expectation_failed: {
    status: 417,
    meaning: "`Expect` is not exactly `100-continue`, in lower case",
    example: 'Expect must be exactly "100-continue", in lower case: send the body without waiting',
    // The client might never send the announced body, and what it sends next must not be read as that body.
    headers: { connection: "close" },
  },
  not_found: { status: 404, meaning: "The user does not exist", example: "user not found" },
  order_not_found: { status: 404, meaning: "The order does not exist", text: "order not found" },
  // The caller adds `Allow`.
  method_not_allowed: {
    status: 405,
    meaning: "The path does not have this method: see `Allow`",
    example: "method DELETE is not allowed here, use GET, HEAD, POST",
  },
  email_taken: {
    status: 409,
    meaning: "Another user has the email in this or another spelling",
    example: "email is already taken",
  },
  reference_taken: {
    status: 409,
    meaning: "Another record of this kind has the reference",
    example: "reference is already taken",
  },
  user_has_orders: { status: 409, meaning: "The user has orders", example: "user has orders" },
  invalid_status_change: {
    status: 409,
    meaning: "The status cannot change to this one",
    example: "cannot change status from shipped to paid; allowed: delivered",
    allowed: ["delivered"],
  },
  invalid_refund: {
    status: 409,
    meaning: "`refunded` is less than before, or more than the total",
    example: "refunded must be from 500, which is refunded already, to 3998, the total",
    allowed: { min: 500, max: 3998 },
  },
  changes_expired: {
    status: 410,
    meaning: "Changes that follow the id in `after` are no longer kept",
    example: "changes before 1001 are no longer kept: synchronize again",
  },
  changes_reset: {
    status: 410,
    meaning:
      "The feed is not the one that `feed` or `after` belongs to, e.g. since a backup was restored",
    example: "the feed 5fHv2mQxT0 has ended: synchronize again",
  },
  version_mismatch: {
    status: 412,
    meaning: "`If-Match` does not match the record, or `If-None-Match` does",
    example: "the record has changed: it is at version 2",
  },
  payload_too_large: {
    status: 413,
    meaning: "The request body is larger than 65,536 bytes, or is sent in more than 1,024 chunks",
    example: "the request body must be at most 65536 bytes",
  },
  unsupported_media_type: {
    status: 415,
    meaning: "The request body is compressed, or its `Content-Type` is not JSON in UTF-8",
    example: "the request body must be application/json: set the Content-Type header",
  },
  idempotency_key_reused: {
    status: 422,
    meaning: "The `Idempotency-Key` belongs to a different request",
    example: "the idempotency key was used for another request",
  },
  too_many_requests: {
    status: 429,
    meaning: "The token exceeds the rate limit",
    example: "too many requests with this token",
    // The next one is allowed within a second.
    headers: { "retry-after": "1" },
  },
  unavailable: {
    status: 503,
    meaning:
      "The database cannot be used at the moment, the token has too many writes in progress or too many large pages unsent, or the server is read-only, a standby or shutting down",
    example: "the database cannot be written at the moment",
    // Longer than a switch between two servers.
    headers: { "retry-after": "2" },
  },
  /** Also the response to any error that is not an `AppError`. */
  internal: {
    ...internalError,
    meaning: "An error of the server. Its log has the details, with the id of the request",
  },
  damaged: { ...internalError, meaning: "A damaged part of the database file is needed" },
  /** E.g. by `head`. The exit code is that of SIGPIPE. */
  output_closed: { ...internalError, meaning: "The reader of the output has closed it" },
  usage: { ...internalError, meaning: "The command line is wrong" },
  operator: { ...internalError, meaning: "The operator can fix it: a setting, a port, a file" },
} as const satisfies Readonly<Record<string, ErrorKind>>;
