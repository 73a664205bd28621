/** What every request meets first and every answer meets last, whatever the route. */
import { Elysia, NotFoundError } from "elysia";
import { AppError } from "../error.ts";
import type { Log } from "../log.ts";
import type { Cors } from "./cors.ts";
import type { Drain } from "./drain.ts";
import { answerTo, logFault } from "./errors.ts";
import type { Metrics } from "./metrics.ts";

export const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

/**
 * Stands in for a body until the guard has let the request through: Elysia parses before any hook
 * that knows the token, and would tell a stranger that the JSON is malformed.
 */
const UNREAD = Symbol("unread body");

const BODILESS: ReadonlySet<number> = new Set([204, 304]);

/** What is noted of a request as it begins. */
function begin(given: string | null | undefined) {
  const request_id = given && REQUEST_ID.test(given) ? given : crypto.randomUUID();
  return { request_id, started_ms: performance.now() };
}

function microseconds(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

export interface ExchangeOptions {
  readonly log: Log;
  readonly cors: Cors | null;
  readonly metrics: Pick<Metrics, "answered">;
  readonly drain: Drain;
}

/**
 * The hooks take their parameter apart in place: Elysia reads their source, and for one that takes
 * the context whole it would parse cookies, at half the cost of a request.
 */
export function exchange({ log, cors, metrics, drain }: ExchangeOptions) {
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
    .onError({ as: "global" }, ({ error, request_id, set }) => {
      // No route has run, and so no guard: whoever asks is told what a stranger is told.
      const unrouted = request_id === undefined && error instanceof NotFoundError;
      const fault = unrouted ? new AppError("unauthorised", "unauthorised") : error;
      logFault(log, fault, request_id);
      const { status, headers, body } = answerTo(fault);
      set.status = status;
      set.headers = { ...headers };
      return body;
    })
    .mapResponse(
      { as: "global" },
      ({ request, responseValue, route, set, request_id, started_ms, token }) => {
        const { method } = request;
        const status = Number(set.status ?? 200);
        const text = typeof responseValue === "string";
        const id = request_id ?? begin(null).request_id;
        const duration_ms = microseconds(performance.now() - (started_ms ?? performance.now()));
        metrics.answered(method, route ?? "none", status, duration_ms);
        if (log.enabled("info")) {
          const fields = { method, route, status, duration_ms, request_id: id, token: token?.name };
          log.info("request", fields);
        }
        const headers: Record<string, string> = {
          "content-type": text ? "text/plain; charset=utf-8" : "application/json",
          "cache-control": "no-store",
          ...(set.headers as Record<string, string>),
          "x-request-id": id,
        };
        if (cors !== null) Object.assign(headers, cors.headers(request.headers.get("origin")));
        if (drain.isDraining()) Object.assign(headers, drain.headers());
        // What is set is in the answer: left here, Elysia would take the answer apart and merge it.
        set.headers = {};
        set.status = 200;
        if (BODILESS.has(status)) {
          delete headers["content-type"];
          return new Response(null, { status, headers });
        }
        const ready = text || responseValue instanceof Uint8Array;
        const body = ready ? responseValue : JSON.stringify(responseValue);
        return new Response(body, { status, headers });
      },
    );
}
