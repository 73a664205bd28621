import type { UncheckedCall } from "./input/call.ts";
import { traceIdOf } from "./input/headers.ts";
import { JSON_TYPE } from "./input/input.ts";
import type { ResponseBody } from "./output/bodies.ts";
import type { Services } from "./routes/services.ts";

const REJECTED: readonly number[] = [401, 429, 503];
/** Also with a port, as some proxies write it. A client can send anything. */
const ADDRESS = /^[\da-f.:[\]]{2,50}$/i;

/** @returns the address of a client whose request is rejected, for the log: who guesses tokens, or calls too often */
export function rejectedAddress(
  { connections, config: { logClients, trustedProxies } }: Pick<Services, "connections" | "config">,
  request: Request,
  status: number,
): string | undefined {
  if (!logClients || !REJECTED.includes(status)) return undefined;
  let calls = trustedProxies === 0 ? null : request.headers.get("x-forwarded-for");
  calls ??= connections.addressOf(request) ?? "";
  // Each proxy has appended who called it. What is before can be forged, and have thousands of entries.
  for (let proxy = 1; proxy < trustedProxies && calls.includes(","); proxy += 1)
    calls = calls.slice(0, calls.lastIndexOf(","));
  const address = calls.slice(calls.lastIndexOf(",") + 1).trim();
  return ADDRESS.test(address) ? address : undefined;
}

function observe(services: Services, call: UncheckedCall): void {
  const { log, metrics } = services;
  const { request, requestId, startedMs, route, token, head, recordId, waitedMs, denial } = call;
  const { method, url } = request;
  const microseconds = Math.round(1000 * (performance.now() - startedMs - (waitedMs ?? 0)));
  const durationMs = microseconds / 1000;
  const leadsElsewhere = head.status === 503 && denial !== undefined;
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
    client: rejectedAddress(services, request, head.status),
  };
  log.request(fields, url);
}

export function respond(
  services: Services,
  call: UncheckedCall,
  body: ResponseBody | AsyncIterable<Uint8Array>,
): Response {
  observe(services, call);
  const { cors, drain, reusedHeaders } = services;
  const { request, requestId, head } = call;
  const { status, headers } = head;
  const { location } = headers;
  const field = headers["etag"] === undefined ? "link" : "etag";
  const value = headers[field];
  // A record has the `ETag` and `Cache-Control`, a new one the `Location` as well, and a page the `Link`.
  const known = (field === "etag" ? 2 : 1) + (location === undefined ? 0 : 1);
  const isPlain = cors === null && request.method !== "HEAD" && !drain.closesConnections();
  if (status < 300 && isPlain && value !== undefined && Object.keys(headers).length <= known) {
    const reused = reusedHeaders[field];
    reused.set(field, value);
    if (location === undefined) reused.delete("location");
    else reused.set("location", location);
    reused.set("x-request-id", requestId);
    return new Response(body, { status, headers: reused });
  }
  headers["x-request-id"] = requestId;
  headers["cache-control"] ??= "no-store";
  if (body !== null) headers["content-type"] ??= JSON_TYPE;
  else delete headers["content-type"];
  // Bun adds `Date` to all other responses (RFC 9110 §6.6.1).
  if (request.method === "HEAD") headers["date"] = new Date().toUTCString();
  if (cors !== null) Object.assign(headers, cors.headers(request.headers.get("origin")));
  if (drain.closesConnections()) Object.assign(headers, drain.countResponse());
  return new Response(body, { status, headers });
}
