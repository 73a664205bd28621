/** The one place where an error becomes an answer. */
import { AppError, type ErrorCode, reason } from "../error.ts";
import type { Log } from "../log.ts";
import { type Answer, type Refusal, refusal } from "./envelope.ts";

export interface Mapping {
  readonly status: number;
  /** Where the source demands plain text: the whole body. */
  readonly text?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The answer to a fault of ours: it says nothing of it. */
export const internal = { status: 500, text: "internal error" };

export const mappings = {
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
  stale: { status: 412 },
  too_large: { status: 413 },
  unsupported_type: { status: 415 },
  key_reused: { status: 422 },
  // A bucket that fills at one token a second or faster has one again within a second.
  too_many_requests: { status: 429, headers: { "retry-after": "1" } },
  unavailable: { status: 503, headers: { "retry-after": "1" } },
  damaged: internal,
  operator: internal,
} satisfies Readonly<Record<ErrorCode, Mapping>>;

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Refusal | string;
}

/** By class alone: a foreign error's `code` or `status` means nothing here, and may say too much. */
export function answerTo(error: unknown): ErrorAnswer {
  const known = error instanceof AppError;
  const { status, text, headers = {} }: Mapping = known ? mappings[error.code] : internal;
  if (text !== undefined || !known) return { status, headers, body: text ?? internal.text };
  return { status, headers, body: refusal(error.message, error.problems) };
}

/** What the client is not told goes to the log. */
export function logFault(log: Log, error: unknown, request_id: string | undefined): void {
  if (error instanceof AppError && mappings[error.code].status < 500) return;
  const known = error instanceof AppError;
  const stack = error instanceof Error && !known ? error.stack : undefined;
  const event = known ? error.code : "internal error";
  log.error(event, { request_id, reason: reason(error), stack });
}

/** @returns the body of the answer */
export function refuse(
  set: Answer,
  error: unknown,
  log: Log,
  request_id: string | undefined,
): Refusal | string {
  logFault(log, error, request_id);
  const { status, headers, body } = answerTo(error);
  set.status = status;
  set.headers = { ...headers };
  return body;
}
