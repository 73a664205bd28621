import { AppError, type ErrorCode, messageOf } from "../../base/error.ts";
import type { Log } from "../../base/log.ts";
import { NOT_PRIMARY } from "../../domain/health.ts";
import { UNREAD } from "../input/body.ts";
import type { ResponseHead, UncheckedCall } from "../input/call.ts";
import { PATCH_TYPES, TEXT_TYPE } from "../input/media-types.ts";
import { traceIdOf } from "../input/request-id.ts";
import { errorEnvelope } from "./bodies.ts";

export interface ResponseTemplate {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** The whole body, for the errors that the contract defines as plain text. */
  readonly text?: string;
}

/** The response to any error that is not the client's. It gives no details: the log has them. */
const internalError = { status: 500, text: "internal error" } as const;

export const docsPath = "/api/v1/docs";

/** On every 401 and 404, so that a client that guesses a path finds the documentation. @see RFC 8631 */
export const serviceDoc = { link: `<${docsPath}>; rel="service-doc"` };

export const errorTemplates = {
  validation_failed: { status: 400 },
  invalid_order_id: { status: 400, text: "invalid order id" },
  unauthorised: {
    status: 401,
    text: "unauthorised",
    headers: { "www-authenticate": "Bearer", ...serviceDoc },
  },
  invalid_token: {
    status: 401,
    text: "unauthorised",
    headers: { "www-authenticate": 'Bearer error="invalid_token"', ...serviceDoc },
  },
  insufficient_scope: {
    status: 403,
    headers: { "www-authenticate": 'Bearer error="insufficient_scope"' },
  },
  // The client might never send the announced body, and what it sends next must not be read as that body.
  expectation_failed: { status: 417, headers: { connection: "close" } },
  not_found: { status: 404, headers: serviceDoc },
  order_not_found: { status: 404, text: "order not found", headers: serviceDoc },
  // The caller adds `Allow`.
  method_not_allowed: { status: 405 },
  email_taken: { status: 409 },
  reference_taken: { status: 409 },
  user_has_orders: { status: 409 },
  invalid_status_change: { status: 409 },
  invalid_refund: { status: 409 },
  changes_expired: { status: 410 },
  changes_reset: { status: 410 },
  version_mismatch: { status: 412 },
  payload_too_large: { status: 413 },
  unsupported_media_type: { status: 415 },
  idempotency_key_reused: { status: 422 },
  // The next one is allowed within a second.
  too_many_requests: { status: 429, headers: { "retry-after": "1" } },
  // Longer than a switch between two servers.
  unavailable: { status: 503, headers: { "retry-after": "2" } },
  damaged: internalError,
  output_closed: internalError,
  internal: internalError,
  usage: internalError,
  operator: internalError,
} as const satisfies Readonly<Record<ErrorCode, ResponseTemplate>>;

/** Logs an error. @param call `undefined` outside the pipeline */
export type LogServerError = (error: unknown, call: UncheckedCall | undefined) => void;

/** Minimum time between two lines about a 503, because clients can cause any number of them. */
const UNAVAILABLE_INTERVAL_MS = 1_000;

/** Logs server errors, since the response has no details of them. */
export function createServerErrorLog(log: Log, nowMs = () => performance.now()): LogServerError {
  let unavailableMs = Number.NEGATIVE_INFINITY;
  return (error, call) => {
    const traceId = call && traceIdOf(call.request.headers);
    const fields = { request_id: call?.requestId, trace_id: traceId, reason: messageOf(error) };
    if (!(error instanceof AppError)) {
      const stack = error instanceof Error ? error.stack : undefined;
      log.error("internal error", { ...fields, stack });
    } else if (error.code === "unavailable") {
      // Load balancers ask all the time.
      if (error.cause === NOT_PRIMARY) return;
      const timeMs = nowMs();
      if (timeMs - unavailableMs < UNAVAILABLE_INTERVAL_MS) return;
      unavailableMs = timeMs;
      log.warn("unavailable", fields);
    } else if (errorTemplates[error.code].status >= 500) log.error(error.code, fields);
  };
}

/** @returns what responds to an error outside the pipeline, such as one while a response is created */
export function createErrorHandler(logServerError: LogServerError) {
  return (error: unknown): Response => {
    logServerError(error, undefined);
    const headers = {
      "content-type": TEXT_TYPE,
      "cache-control": "no-store",
      // Bun adds it unless the method is HEAD, and keeps an existing one.
      date: new Date().toUTCString(),
    };
    return new Response(internalError.text, { status: internalError.status, headers });
  };
}

/**
 * Only the class of an error counts: `code` or `status` of any other error has no meaning here, and could leak
 * details.
 * @returns the body of the response. Sets its status and headers, instead of those of the handler
 */
export function errorBody(head: ResponseHead, error: unknown, method: string): string {
  const known = error instanceof AppError ? error : new AppError("internal", "");
  const template: ResponseTemplate = errorTemplates[known.code];
  head.status = template.status;
  head.headers = { ...template.headers };
  head.version = null;
  if (template.text !== undefined) {
    head.headers["content-type"] = TEXT_TYPE;
    return template.text;
  }
  if (known.scopes !== undefined) {
    head.headers["www-authenticate"] += `, scope="${known.scopes.join(" ")}"`;
  }
  if (known.cause === UNREAD) head.headers["connection"] = "close";
  if (template.status === 415 && method === "PATCH") head.headers["accept-patch"] = PATCH_TYPES;
  return JSON.stringify(errorEnvelope(known));
}
