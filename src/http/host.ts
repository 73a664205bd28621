/** The header field `Host`: exactly one, and valid. @see RFC 9112 §3.2 */
import { Elysia } from "elysia";
import { failField } from "../error.ts";

/** A DNS name or an IPv4 address, or an IPv6 address in brackets, each with an optional port. */
const HOST = /^(?:[\w-]+(?:\.[\w-]+)*\.?|\[([\da-f:.]+)\])(?::(\d*))?$/i;
const MAX_PORT = 65_535;
/** Most hosts. Without groups the check takes a third of the time. */
const COMMON_HOST = /^[a-z\d-]+(?:\.[a-z\d-]+)*(?::\d{1,4})?$/i;

function isHost(value: string): boolean {
  if (COMMON_HOST.test(value)) return true;
  const [match, address, port = ""] = HOST.exec(value) ?? [];
  if (match === undefined || Number(port) > MAX_PORT) return false;
  return address === undefined || URL.canParse(`http://[${address}]`);
}

/**
 * Bun joins several `Host` fields with commas, which a valid value never contains. Only an HTTP/1.0 request can be
 * without the field, where it is optional: Bun itself returns 400 for HTTP/1.1 without it.
 * @throws {AppError} invalid
 */
export function requireHost(value: string | null | undefined): void {
  if (value === null || value === undefined || isHost(value)) return;
  failField("Host", "must be one valid host name");
}

/** Checks `Host` on public routes. All others check it after the token, in `authenticate`. */
export function publicHost() {
  return new Elysia({ name: "public host" }).onTransform({ as: "scoped" }, ({ request }) => {
    requireHost(request.headers.get("host"));
  });
}
