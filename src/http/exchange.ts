/** What every request meets first and every answer meets last, whatever the route. */
import { Elysia } from "elysia";
import { AppError } from "../error.ts";
import type { Log } from "../log.ts";
import type { Cors } from "./cors.ts";
import { answerTo, logFault } from "./errors.ts";

const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

export interface ExchangeOptions {
  readonly log: Log;
  readonly cors: Cors | null;
}

/**
 * Stands in for a body until the guard has let the request through: Elysia parses before any hook
 * that knows the token, and would tell a stranger that the JSON is malformed.
 */
const UNREAD = Symbol("unread body");

const BODILESS: ReadonlySet<number> = new Set([204, 304]);

/** What the hooks here and the guard have put into the context of a request. */
interface Known {
  readonly request_id: string;
  readonly started_ms: number;
  readonly token?: { readonly name: string } | null;
}

function requestId(headers: Headers): string {
  const given = headers.get("x-request-id");
  return given !== null && REQUEST_ID.test(given) ? given : crypto.randomUUID();
}

function microseconds(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

/** What is noted of a request as it begins. */
function begin({ headers }: Request) {
  return { request_id: requestId(headers), started_ms: performance.now() };
}

export function exchange({ log, cors }: ExchangeOptions) {
  return new Elysia({ name: "exchange" })
    .onError({ as: "global" }, (context) => {
      // No route has run, and so no guard: whoever asks is told what a stranger is told.
      const unrouted = (context as unknown as Partial<Known>).request_id === undefined;
      if (unrouted) Object.assign(context, begin(context.request));
      const error = unrouted ? new AppError("unauthorised", "unauthorised") : context.error;
      logFault(log, error, (context as unknown as Known).request_id);
      const { status, headers, body } = answerTo(error);
      context.set.status = status;
      context.set.headers = { ...headers };
      return body;
    })
    .onParse({ as: "global" }, () => UNREAD)
    .derive({ as: "global" }, ({ request }) => ({
      ...begin(request),
      // The URL itself, for the check of the route: Elysia's parser loses names given twice and
      // looks for them in the path, too. It also leaves the bearer plugin no query to take a token from.
      query: request.url as unknown as Record<string, string>,
    }))
    .mapResponse({ as: "global" }, (context) => {
      const { request, responseValue: body, route, set } = context;
      const { request_id, started_ms, token } = context as unknown as Known;
      const status = Number(set.status ?? 200);
      const text = typeof body === "string";
      const headers: Record<string, string> = {
        "content-type": text ? "text/plain; charset=utf-8" : "application/json",
        "cache-control": "no-store",
        ...(set.headers as Record<string, string>),
        "x-request-id": request_id,
        ...cors?.headers(request.headers.get("origin")),
      };
      log.info("request", {
        method: request.method,
        route,
        status,
        duration_ms: microseconds(performance.now() - started_ms),
        request_id,
        token: token?.name,
      });
      if (BODILESS.has(status)) {
        delete headers["content-type"];
        return new Response(null, { status, headers });
      }
      return new Response(text ? body : JSON.stringify(body), { status, headers });
    });
}
