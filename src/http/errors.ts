/** The one place where an error becomes an answer. */
import { AppError, type ErrorCode, messageOf } from "../error.ts";
import type { Log } from "../log.ts";
import { type ErrorEnvelope, errorEnvelope, type ResponseHead } from "./envelope.ts";

export interface ResponseTemplate {
  readonly status: number;
  /** Where the source demands plain text: the whole body. */
  readonly text?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The answer to a fault of ours: it says nothing of it. */
export const internal_error = { status: 500, text: "internal error" };

export const error_responses = {
  invalid: { status: 400 },
  invalid_order_id: { status: 400, text: "invalid order id" },
  unauthorised: {
    status: 401,
    text: "unauthorised",
    headers: { "www-authenticate": "Bearer" },
  },
  invalid_token: {
    status: 401,
    text: "unauthorised",
    headers: { "www-authenticate": 'Bearer error="invalid_token"' },
  },
  insufficient_scope: {
    status: 403,
    headers: { "www-authenticate": 'Bearer error="insufficient_scope"' },
  },
  not_found: { status: 404 },
  order_not_found: { status: 404, text: "order not found" },
  conflict: { status: 409 },
  version_mismatch: { status: 412 },
  too_large: { status: 413 },
  unsupported_type: { status: 415 },
  key_reused: { status: 422 },
  // A bucket that fills at one token a second or faster has one again within a second.
  too_many_requests: { status: 429, headers: { "retry-after": "1" } },
  unavailable: { status: 503, headers: { "retry-after": "1" } },
  damaged: internal_error,
  operator: internal_error,
} satisfies Readonly<Record<ErrorCode, ResponseTemplate>>;

export interface ErrorResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: ErrorEnvelope | string;
}

/** By class alone: a foreign error's `code` or `status` means nothing here, and may say too much. */
export function errorResponse(error: unknown): ErrorResponse {
  const expected = error instanceof AppError;
  const {
    status,
    text,
    headers = {},
  }: ResponseTemplate = expected ? error_responses[error.code] : internal_error;
  if (text !== undefined || !expected)
    return { status, headers, body: text ?? internal_error.text };
  return { status, headers, body: errorEnvelope(error.message, error.problems) };
}

/** What the client is not told goes to the log. */
export function logServerError(log: Log, error: unknown, request_id: string | undefined): void {
  if (error instanceof AppError && error_responses[error.code].status < 500) return;
  const expected = error instanceof AppError;
  const stack = error instanceof Error && !expected ? error.stack : undefined;
  const event = expected ? error.code : "internal error";
  log.error(event, { request_id, reason: messageOf(error), stack });
}

/** @returns the body of the answer */
export function handleError(
  set: ResponseHead,
  error: unknown,
  log: Log,
  request_id: string | undefined,
): ErrorEnvelope | string {
  logServerError(log, error, request_id);
  const { status, headers, body } = errorResponse(error);
  set.status = status;
  set.headers = { ...headers };
  return body;
}
