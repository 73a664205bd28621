/** A valid `X-Request-Id`: 1 to 128 visible ASCII characters. */
export const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

/** @returns the `X-Request-Id` of the client if it is valid, otherwise a new id */
export function requestIdOf(headers: Headers): string {
  const clientId = headers.get("x-request-id");
  return clientId !== null && REQUEST_ID.test(clientId) ? clientId : crypto.randomUUID();
}
