import { AppError, messageOf } from "../../base/error.ts";
import { type ErrorKind, errorKinds, internalError } from "../../base/error-kinds.ts";
import type { Log } from "../../base/log.ts";
import { NOT_PRIMARY } from "../../domain/health.ts";
import { UNREAD } from "../input/body.ts";
import type { ResponseHead, UncheckedCall } from "../input/call.ts";
import { traceIdOf } from "../input/headers.ts";
import { PATCH_TYPES, TEXT_TYPE } from "../input/input.ts";
import { errorEnvelope } from "./bodies.ts";

export const docsPath = "/api/v1/docs";

export const serviceDoc = { link: `<${docsPath}>; rel="service-doc"` };

/** So that a client that guesses a path finds the documentation. @see RFC 8631 */
export function hasServiceDoc(status: number): boolean {
  return status === 401 || status === 404;
}

/** @param call `undefined` outside the pipeline */
export type LogServerError = (error: unknown, call: UncheckedCall | undefined) => void;

/** Minimum time between two lines about a 503, because clients can cause any number of them. */
const UNAVAILABLE_INTERVAL_MS = 1_000;

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
    } else if (errorKinds[error.code].status >= 500) log.error(error.code, fields);
  };
}

/** For errors outside the pipeline, such as one while a response is created. */
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

/** Only the class of an error counts: `code` or `status` of any other error could leak details. */
export function errorBody(head: ResponseHead, error: unknown, method: string): string {
  const known = error instanceof AppError ? error : new AppError("internal", "");
  const { status, headers, text }: ErrorKind = errorKinds[known.code];
  head.status = status;
  head.headers = { ...headers, ...(hasServiceDoc(status) && serviceDoc) };
  if (text !== undefined) {
    head.headers["content-type"] = TEXT_TYPE;
    return text;
  }
  if (known.scopes !== undefined)
    head.headers["www-authenticate"] += `, scope="${known.scopes.join(" ")}"`;
  if (known.cause === UNREAD) head.headers["connection"] = "close";
  if (status === 415 && method === "PATCH") head.headers["accept-patch"] = PATCH_TYPES;
  return JSON.stringify(errorEnvelope(known));
}
