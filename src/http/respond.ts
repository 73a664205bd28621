/** The last step of every request: its response, metrics and log. */
import type { AppError } from "../base/error.ts";
import type { Log, RequestFields } from "../base/log.ts";
import type { Token } from "../domain/token.ts";
import type { Drain } from "./limits/drain.ts";
import type { Metrics } from "./metrics/metrics.ts";
import { REVALIDATE, type ResponseBody, type ResponseHead } from "./output/bodies.ts";
import type { Cors } from "./output/cors.ts";
import { JSON_TYPE } from "./output/media-types.ts";
import { createThrottledLog } from "./output/throttled-log.ts";

const NO_STORE = "no-store";

/** A request, and what is known of its response so far. */
export interface Exchange {
  readonly request: Request;
  /** The parameters of its path, as a router passes them. */
  readonly params: unknown;
  readonly startedMs: number;
  readonly requestId: string;
  /** The pattern, not the path, so that the number of metrics is bounded. */
  readonly route: string;
  /** `null` if the request needs none, or has not been authenticated. */
  token: Token | null;
  /** Why the response is 401, as a word. */
  denial: AppError | null;
  readonly head: ResponseHead;
}

interface ResponderOptions {
  readonly log: Log;
  readonly cors: Cors | null;
  readonly metrics: Pick<Metrics, "observeRequest">;
  readonly drain: Drain;
}

/** Creates the response, with the headers that all responses have, records metrics and logs the request. */
export type Respond = (exchange: Exchange, body: ResponseBody) => Response;

function roundToMicroseconds(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

export function createResponder(options: ResponderOptions): Respond {
  const { log, cors, metrics, drain } = options;
  // Reused, because a response copies these faster than it builds them from an object. All responses of a kind set the
  // same fields, so that nothing remains from the previous one.
  const recordHeaders = new Headers({ "content-type": JSON_TYPE, "cache-control": REVALIDATE });
  const pageHeaders = new Headers({ "content-type": JSON_TYPE, "cache-control": NO_STORE });

  /** @returns `null` if the fields are not those of a record or of a page */
  function reusedHeaders({ headers }: ResponseHead): Headers | null {
    const { etag, link } = headers;
    const count = Object.keys(headers).length;
    if (link !== undefined && count === 1) {
      pageHeaders.set("link", link);
      return pageHeaders;
    }
    if (etag === undefined || headers["cache-control"] !== REVALIDATE || count !== 2) return null;
    recordHeaders.set("etag", etag);
    return recordHeaders;
  }

  /** Anybody can send such requests. */
  const logDenial = createThrottledLog<{ fields: RequestFields; url: string }>(
    ({ fields, url }, omitted) => log.request({ ...fields, omitted }, url),
  );

  function observe(exchange: Exchange): void {
    const { request, requestId, startedMs, route, token, denial, head } = exchange;
    const { method } = request;
    const { status, recordId, waitedMs } = head;
    const durationMs = roundToMicroseconds(performance.now() - startedMs - (waitedMs ?? 0));
    metrics.observeRequest(method, route, status, durationMs);
    if (!log.enabled("info")) return;
    const isChange = method !== "GET" && method !== "HEAD";
    const fields = {
      method,
      route,
      record_id: isChange ? recordId : undefined,
      status,
      duration_ms: durationMs,
      waited_ms: waitedMs && Math.round(waitedMs),
      request_id: requestId,
      token: token?.name,
    };
    if (denial === null) {
      log.request(fields, request.url);
      return;
    }
    const reason = denial.message;
    const denied = { ...fields, token: token?.name ?? denial.token, reason };
    logDenial({ fields: denied, url: request.url }, `${reason} ${denied.token}`);
  }

  return (exchange, body) => {
    observe(exchange);
    const { request, requestId, head } = exchange;
    const { status, headers } = head;
    const isDraining = drain.isDraining();
    // Bun adds `Date` to all other responses (RFC 9110 §6.6.1).
    if (request.method === "HEAD") headers["date"] = new Date().toUTCString();
    if (cors === null && !isDraining && status === 200) {
      const reused = reusedHeaders(head);
      if (reused !== null) {
        reused.set("x-request-id", requestId);
        return new Response(body, { status, headers: reused });
      }
    }
    headers["content-type"] ??= JSON_TYPE;
    headers["cache-control"] ??= NO_STORE;
    headers["x-request-id"] = requestId;
    if (cors !== null) {
      const { vary } = headers;
      Object.assign(headers, cors.headers(request.headers.get("origin")));
      if (vary !== undefined) headers["vary"] = `${vary}, ${headers["vary"]}`;
    }
    if (isDraining) Object.assign(headers, drain.countResponse());
    if (body === null) delete headers["content-type"];
    return new Response(body, { status, headers });
  };
}
