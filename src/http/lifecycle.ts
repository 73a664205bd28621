/** What every request meets first and every answer meets last, whatever the route. */
import { Elysia, NotFoundError } from "elysia";
import { AppError } from "../error.ts";
import type { Log } from "../log.ts";
import type { Cors } from "./cors.ts";
import type { Drain } from "./drain.ts";
import { JSON_TYPE, PATCH_TYPES, REVALIDATE, type ResponseHead, TEXT_TYPE } from "./envelope.ts";
import { handleError } from "./errors.ts";
import type { Metrics } from "./metrics.ts";

export const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

/**
 * Stands in for a body until the guard has let the request through: Elysia parses before any hook
 * that knows the token, and would tell a stranger that the JSON is malformed.
 */
const UNREAD = Symbol("unread body");

const BODILESS_STATUSES: ReadonlySet<number> = new Set([204, 302, 304]);

/** What is noted of a request as it begins. */
export interface RequestStart {
  readonly request_id: string;
  readonly started_ms: number;
}

/** @param client_id by the client, as its `X-Request-Id` */
export function startRequest(client_id: string | null | undefined): RequestStart {
  const request_id = client_id && REQUEST_ID.test(client_id) ? client_id : crypto.randomUUID();
  return { request_id, started_ms: performance.now() };
}

function microseconds(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

/** A request, and what it has come to. */
export interface HandledRequest {
  readonly start: RequestStart;
  readonly request: Request;
  /** The pattern, not the path: paths are without number. */
  readonly route: string;
  readonly token: { readonly name: string } | null;
  readonly set: ResponseHead;
  /** Text and bytes as they are, all else as JSON. */
  readonly body: unknown;
}

export interface ResponderOptions {
  readonly log: Log;
  readonly cors: Cors | null;
  readonly metrics: Pick<Metrics, "observeRequest">;
  readonly drain: Drain;
}

/** Counts an exchange, logs it, and makes its response. The headers that are set are its own from then on. */
export type Respond = (handled: HandledRequest) => Response;

export function createResponder({ log, cors, metrics, drain }: ResponderOptions): Respond {
  /** A response copies these: that takes half as long as to read the same out of text each time. */
  const shared_headers = new Headers({ "content-type": JSON_TYPE, "cache-control": REVALIDATE });

  /** @returns `null` when more is set, or other, than `record` sets */
  function recordHeaders({ headers }: ResponseHead, request_id: string): Headers | null {
    const { etag } = headers;
    if (etag === undefined || headers["cache-control"] !== REVALIDATE) return null;
    if (Object.keys(headers).length !== 2) return null;
    // Always the same two, so that nothing is left of the answer before.
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
      log.info("request", fields);
    }
    // Bun adds it to all other responses (RFC 9110 §6.6.1).
    if (method === "HEAD") set.headers["date"] = new Date().toUTCString();
    const is_text = typeof body === "string";
    const is_raw = is_text || body instanceof Uint8Array || body instanceof ReadableStream;
    if (status === 200 && !is_raw && cors === null && !drain.isDraining()) {
      const headers = recordHeaders(set, request_id);
      if (headers !== null) return new Response(JSON.stringify(body), { headers });
    }
    const headers = set.headers as Record<string, string>;
    headers["content-type"] ??= is_text ? TEXT_TYPE : JSON_TYPE;
    headers["cache-control"] ??= "no-store";
    headers["x-request-id"] = request_id;
    if (cors !== null) Object.assign(headers, cors.headers(request.headers.get("origin")));
    if (drain.isDraining()) Object.assign(headers, drain.headers());
    if (BODILESS_STATUSES.has(status)) {
      delete headers["content-type"];
      return new Response(null, { status, headers });
    }
    return new Response(is_raw ? body : JSON.stringify(body), { status, headers });
  };
}

/**
 * The hooks take their parameter apart in place: Elysia reads their source, and for one that takes
 * the context whole it would parse cookies, at half the cost of a request.
 */
export function lifecycle(log: Log, respond: Respond) {
  return new Elysia({ name: "lifecycle" })
    .onParse({ as: "global" }, () => UNREAD)
    .derive({ as: "global" }, ({ headers, request }) => ({
      ...startRequest(headers["x-request-id"]),
      // Known once the guard has let it through.
      token: null as { readonly name: string } | null,
      // The URL, for `querySchema`: Elysia's parser drops parameters that are given twice, and also looks for
      // them in the path. The bearer plugin finds no token in it either. Routes see the validated type.
      query: request.url as unknown,
    }))
    .onError({ as: "global" }, ({ error, request, request_id, set }) => {
      // No route has run, and so no guard: whoever asks is told what a stranger is told.
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
        // Where no route has run, nothing has begun.
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
        // What is set is in the answer: left here, Elysia would take the answer apart and merge it.
        set.headers = {};
        set.status = 200;
        return response;
      },
    );
}
