const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

export function requestIdOf(headers: Headers): string {
  const clientId = headers.get("x-request-id");
  return clientId !== null && REQUEST_ID.test(clientId) ? clientId : crypto.randomUUID();
}

/** With the trace id; a later version may have more. @see W3C Trace Context §3.2 */
const TRACE_PARENT =
  /^(?:00(?=.{53}$)|(?!00|ff)[\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})[\da-f]{16}-[\da-f]{2}(?:-.*)?$/;

export function traceIdOf(headers: Headers): string | undefined {
  const parent = headers.get("traceparent");
  return parent === null ? undefined : TRACE_PARENT.exec(parent)?.[1];
}
