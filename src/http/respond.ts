/** The last step of every request: its response, metrics and log. */
import type { Log } from "../base/log.ts";
import type { UncheckedCall } from "./input/call.ts";
import { JSON_TYPE } from "./input/media-types.ts";
import { traceIdOf } from "./input/request-id.ts";
import type { RejectedAddress } from "./limits/client-address.ts";
import type { Drain } from "./limits/drain.ts";
import type { Metrics } from "./metrics/metrics.ts";
import { REVALIDATE, type ResponseBody } from "./output/bodies.ts";
import type { Cors } from "./output/cors.ts";

interface ResponderOptions {
  readonly log: Log;
  readonly cors: Cors | null;
  readonly metrics: Pick<Metrics, "observeRequest">;
  readonly drain: Drain;
  readonly rejectedAddress: RejectedAddress;
}

export type Respond = ReturnType<typeof createResponder>;

function observe({ log, metrics, rejectedAddress }: ResponderOptions, call: UncheckedCall): void {
  const { request, requestId, startedMs, route, token, head, recordId, waitedMs, denial } = call;
  const { method, url } = request;
  const microseconds = Math.round(1000 * (performance.now() - startedMs - (waitedMs ?? 0)));
  const durationMs = microseconds / 1000;
  const leadsElsewhere = head.status === 503 && denial !== null;
  metrics.observeRequest(method, route, leadsElsewhere ? "not_primary" : head.status, durationMs);
  if (!log.enabled("info")) return;
  const isChange = method !== "GET" && method !== "HEAD";
  const fields = {
    method,
    route,
    record_id: isChange ? recordId : undefined,
    status: head.status,
    duration_ms: durationMs,
    waited_ms: waitedMs && Math.round(waitedMs),
    request_id: requestId,
    trace_id: traceIdOf(request.headers),
    token: token?.name ?? denial?.token,
    reason: denial?.message,
    client: rejectedAddress(request, head.status),
  };
  log.request(fields, url);
}

export function createResponder(options: ResponderOptions) {
  const { cors, drain } = options;
  // A response copies these in two thirds of the time that it takes for an object.
  const recordHeaders = new Headers({ "content-type": JSON_TYPE, "cache-control": REVALIDATE });
  return (call: UncheckedCall, body: ResponseBody | AsyncIterable<Uint8Array>) => {
    observe(options, call);
    const { request, requestId, head } = call;
    const { status, headers, version } = head;
    const isPlain = cors === null && request.method === "GET" && !drain.closesConnections();
    if (version !== null && isPlain) {
      recordHeaders.set("etag", `"${version}"`);
      recordHeaders.set("x-request-id", requestId);
      return new Response(body, { headers: recordHeaders });
    }
    headers["x-request-id"] = requestId;
    headers["cache-control"] ??= "no-store";
    if (body !== null) headers["content-type"] ??= JSON_TYPE;
    else delete headers["content-type"];
    // Bun adds `Date` to all other responses (RFC 9110 §6.6.1).
    if (request.method === "HEAD") headers["date"] = new Date().toUTCString();
    if (cors !== null) {
      Object.assign(headers, cors.headers(request.headers.get("origin")));
    }
    if (drain.closesConnections()) Object.assign(headers, drain.countResponse());
    return new Response(body, { status, headers });
  };
}
