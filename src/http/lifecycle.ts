/** The first and the last step of every request: its id and start time, and its response, metrics and log. */
import { Elysia, NotFoundError } from "elysia";
import { AppError } from "../error.ts";
import type { Log } from "../log.ts";
import type { Token } from "../token.ts";
import type { Cors } from "./cors.ts";
import type { Drain } from "./drain.ts";
import { JSON_TYPE, PATCH_TYPES, REVALIDATE, type ResponseHead, TEXT_TYPE } from "./envelope.ts";
import { handleError } from "./errors.ts";
import type { Metrics } from "./metrics.ts";
import type { RateLimiter } from "./rate-limit.ts";

export const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

/**
 * Replaces the body until the token is verified. Elysia parses bodies before any hook that knows the token, so
 * that malformed JSON would be a 400 instead of a 401.
 */
const UNREAD = Symbol("unread body");

const BODILESS_STATUSES: ReadonlySet<number> = new Set([204, 302, 304]);

/** Recorded when a request arrives. */
export interface RequestStart {
  readonly request_id: string;
  readonly started_ms: number;
}

/** @param client_id the `X-Request-Id` of the client */
export function startRequest(client_id: string | null | undefined): RequestStart {
  const request_id = client_id && REQUEST_ID.test(client_id) ? client_id : crypto.randomUUID();
  return { request_id, started_ms: performance.now() };
}

function microseconds(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

/** A request and its result. */
export interface HandledRequest {
  readonly start: RequestStart;
  readonly request: Request;
  /** The pattern, not the path, so that the number of metrics is bounded. */
  readonly route: string;
  readonly token: Pick<Token, "name" | "hash"> | null;
  readonly set: ResponseHead;
  /** Text, bytes and streams are sent unchanged, anything else as JSON. */
  readonly body: unknown;
}

export interface ResponderOptions {
  readonly log: Log;
  readonly cors: Cors | null;
  readonly metrics: Pick<Metrics, "observeRequest">;
  readonly drain: Drain;
  readonly rateLimiter: RateLimiter | null;
}

/** Creates the response, records metrics and logs the request. The response takes over the headers of `set`. */
export type Respond = (handled: HandledRequest) => Response;

export function createResponder({
  log,
  cors,
  metrics,
  drain,
  rateLimiter,
}: ResponderOptions): Respond {
  const has_shared_headers = cors === null && rateLimiter === null;
  /** Reused: a response copies these in half the time that it takes to build them from an object. */
  const shared_headers = new Headers({ "content-type": JSON_TYPE, "cache-control": REVALIDATE });

  /** @returns `null` if headers other than those of `recordResponse` are set */
  function recordHeaders({ headers }: ResponseHead, request_id: string): Headers | null {
    const { etag } = headers;
    if (etag === undefined || headers["cache-control"] !== REVALIDATE) return null;
    if (Object.keys(headers).length !== 2) return null;
    // Always both, so that nothing remains from the previous response.
    shared_headers.set("etag", `${etag}`);
    shared_headers.set("x-request-id", request_id);
    return shared_headers;
  }

  return ({ start: { request_id, started_ms }, request, route, token, set, body }) => {
    const { method } = request;
    const status = Number(set.status ?? 200);
    const duration_ms = microseconds(performance.now() - started_ms);
    metrics.observeRequest(method, route, status, duration_ms);
    if (log.enabled("info")) {
      const fields = { method, route, status, duration_ms, request_id, token: token?.name };
      log.request(fields, request.url);
    }
    // Bun adds `Date` to all other responses (RFC 9110 §6.6.1).
    if (method === "HEAD") set.headers["date"] = new Date().toUTCString();
    const is_text = typeof body === "string";
    const is_raw = is_text || body instanceof Uint8Array || body instanceof ReadableStream;
    if (status === 200 && !is_raw && has_shared_headers && !drain.isDraining()) {
      const headers = recordHeaders(set, request_id);
      if (headers !== null) return new Response(JSON.stringify(body), { headers });
    }
    const headers = set.headers as Record<string, string>;
    headers["content-type"] ??= is_text ? TEXT_TYPE : JSON_TYPE;
    headers["cache-control"] ??= "no-store";
    headers["x-request-id"] = request_id;
    if (cors !== null) {
      const { vary } = headers;
      Object.assign(headers, cors.headers(request.headers.get("origin")));
      if (vary !== undefined) headers["vary"] = `${vary}, ${headers["vary"]}`;
    }
    if (drain.isDraining()) Object.assign(headers, drain.headers());
    if (rateLimiter !== null && token !== null) {
      Object.assign(headers, rateLimiter.headers(token.hash));
    }
    if (BODILESS_STATUSES.has(status)) {
      delete headers["content-type"];
      return new Response(null, { status, headers });
    }
    return new Response(is_raw ? body : JSON.stringify(body), { status, headers });
  };
}

/**
 * The hooks destructure their parameter in place. Elysia reads their source text: if a hook uses the whole context,
 * Elysia also parses cookies, which takes half as long as the rest of a request.
 */
export function lifecycle(log: Log, respond: Respond) {
  return new Elysia({ name: "lifecycle" })
    .onParse({ as: "global" }, () => UNREAD)
    .derive({ as: "global" }, ({ headers, request }) => ({
      ...startRequest(headers["x-request-id"]),
      // Set by `authenticate`.
      token: null as Token | null,
      // The URL, for `querySchema`: Elysia's parser drops parameters that are given twice, and also looks for
      // them in the path. The bearer plugin finds no token in it either. Routes see the validated type.
      query: request.url as unknown,
    }))
    .onError({ as: "global" }, ({ error, request, request_id, set }) => {
      // No route matched, so the token was not checked: respond as to a request without one.
      const unrouted = request_id === undefined && error instanceof NotFoundError;
      const shown_error = unrouted ? new AppError("unauthorised", "unauthorised") : error;
      const body = handleError(set as ResponseHead, shown_error, log, request_id);
      if (set.status === 415 && request.method === "PATCH") {
        set.headers["accept-patch"] = PATCH_TYPES;
      }
      return body;
    })
    .mapResponse(
      { as: "global" },
      ({ request, responseValue, route, set, request_id, started_ms, token = null }) => {
        // If no route matched, `derive` has not run.
        const start = request_id === undefined ? startRequest(null) : { request_id, started_ms };
        const { headers, status } = set as ResponseHead;
        const response = respond({
          start,
          request,
          route: route ?? "none",
          token,
          set: { headers, status },
          body: responseValue,
        });
        // The response already has these headers. If they stay here, Elysia rebuilds the response to merge them.
        set.headers = {};
        set.status = 200;
        return response;
      },
    );
}
