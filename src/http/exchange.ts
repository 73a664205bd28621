/** What every request meets first and every answer meets last, whatever the route. */
import { Elysia, NotFoundError } from "elysia";
import { AppError } from "../error.ts";
import type { Log } from "../log.ts";
import type { Cors } from "./cors.ts";
import type { Drain } from "./drain.ts";
import { type Answer, ASK_EACH_TIME, JSON_TYPE, PATCH_TYPES, TEXT_TYPE } from "./envelope.ts";
import { refuse } from "./errors.ts";
import type { Metrics } from "./metrics.ts";

export const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

/**
 * Stands in for a body until the guard has let the request through: Elysia parses before any hook
 * that knows the token, and would tell a stranger that the JSON is malformed.
 */
const UNREAD = Symbol("unread body");

const BODILESS: ReadonlySet<number> = new Set([204, 304]);

/** What is noted of a request as it begins. */
export interface Begun {
  readonly request_id: string;
  readonly started_ms: number;
}

/** @param given by the client, as its `X-Request-Id` */
export function begin(given: string | null | undefined): Begun {
  const request_id = given && REQUEST_ID.test(given) ? given : crypto.randomUUID();
  return { request_id, started_ms: performance.now() };
}

function microseconds(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

/** A request, and what it has come to. */
export interface Exchange {
  readonly begun: Begun;
  readonly request: Request;
  /** The pattern, not the path: paths are without number. */
  readonly route: string;
  readonly token: { readonly name: string } | null;
  readonly set: Answer;
  /** Text and bytes as they are, all else as JSON. */
  readonly body: unknown;
}

export interface FinishOptions {
  readonly log: Log;
  readonly cors: Cors | null;
  readonly metrics: Pick<Metrics, "answered">;
  readonly drain: Drain;
}

/** Counts an exchange, logs it, and makes its response. The headers that are set are its own from then on. */
export type Finish = (exchange: Exchange) => Response;

export function createFinish({ log, cors, metrics, drain }: FinishOptions): Finish {
  /** A response copies these: that takes half as long as to read the same out of text each time. */
  const of_record = new Headers({ "content-type": JSON_TYPE, "cache-control": ASK_EACH_TIME });

  /** @returns `null` when more is set, or other, than `record` sets */
  function headersOfRecord({ headers }: Answer, request_id: string): Headers | null {
    const { etag } = headers;
    if (etag === undefined || headers["cache-control"] !== ASK_EACH_TIME) return null;
    if (Object.keys(headers).length !== 2) return null;
    // Always the same two, so that nothing is left of the answer before.
    of_record.set("etag", `${etag}`);
    of_record.set("x-request-id", request_id);
    return of_record;
  }

  return ({ begun: { request_id, started_ms }, request, route, token, set, body }) => {
    const { method } = request;
    const status = Number(set.status ?? 200);
    const duration_ms = microseconds(performance.now() - started_ms);
    metrics.answered(method, route, status, duration_ms);
    if (log.enabled("info")) {
      const fields = { method, route, status, duration_ms, request_id, token: token?.name };
      log.info("request", fields);
    }
    // Bun adds it to all other responses (RFC 9110 §6.6.1).
    if (method === "HEAD") set.headers["date"] = new Date().toUTCString();
    const text = typeof body === "string";
    const ready = text || body instanceof Uint8Array || body instanceof ReadableStream;
    if (status === 200 && !ready && cors === null && !drain.isDraining()) {
      const headers = headersOfRecord(set, request_id);
      if (headers !== null) return new Response(JSON.stringify(body), { headers });
    }
    const headers = set.headers as Record<string, string>;
    headers["content-type"] ??= text ? TEXT_TYPE : JSON_TYPE;
    headers["cache-control"] ??= "no-store";
    headers["x-request-id"] = request_id;
    if (cors !== null) Object.assign(headers, cors.headers(request.headers.get("origin")));
    if (drain.isDraining()) Object.assign(headers, drain.headers());
    if (BODILESS.has(status)) {
      delete headers["content-type"];
      return new Response(null, { status, headers });
    }
    return new Response(ready ? body : JSON.stringify(body), { status, headers });
  };
}

/**
 * The hooks take their parameter apart in place: Elysia reads their source, and for one that takes
 * the context whole it would parse cookies, at half the cost of a request.
 */
export function exchange(log: Log, finish: Finish) {
  return new Elysia({ name: "exchange" })
    .onParse({ as: "global" }, () => UNREAD)
    .derive({ as: "global" }, ({ headers, request }) => ({
      ...begin(headers["x-request-id"]),
      // Known once the guard has let it through.
      token: null as { readonly name: string } | null,
      // The URL itself, for the check of the route: Elysia's parser loses names given twice and
      // looks for them in the path, too. It also leaves the bearer plugin no query to take a token
      // from.
      query: request.url as unknown as Record<string, string>,
    }))
    .onError({ as: "global" }, ({ error, request, request_id, set }) => {
      // No route has run, and so no guard: whoever asks is told what a stranger is told.
      const unrouted = request_id === undefined && error instanceof NotFoundError;
      const fault = unrouted ? new AppError("unauthorised", "unauthorised") : error;
      const body = refuse(set as Answer, fault, log, request_id);
      if (set.status === 415 && request.method === "PATCH") {
        set.headers["accept-patch"] = PATCH_TYPES;
      }
      return body;
    })
    .mapResponse(
      { as: "global" },
      ({ request, responseValue, route, set, request_id, started_ms, token = null }) => {
        // Where no route has run, nothing has begun.
        const begun = request_id === undefined ? begin(null) : { request_id, started_ms };
        const { headers, status } = set as Answer;
        const response = finish({
          begun,
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
