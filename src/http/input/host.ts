/** The header field `Host`: exactly one, and valid. @see RFC 9112 §3.2 */
import { failField } from "../../base/error.ts";

/** A DNS name or an IPv4 address, or an IPv6 address in brackets, each with an optional port. */
const HOST = /^(?:[\w-]+(?:\.[\w-]+)*\.?|\[([\da-f:.]+)\])(?::(\d*))?$/i;

function isHost(value: string): boolean {
  const [match, address, port = ""] = HOST.exec(value) ?? [];
  if (match === undefined || Number(port) > 65_535) return false;
  return address === undefined || URL.canParse(`http://[${address}]`);
}

/**
 * Bun joins several `Host` fields with commas, which a valid value never contains. Only an HTTP/1.0 request can be
 * without the field: Bun itself returns 400 for HTTP/1.1 without it.
 */
export function requireHost(value: string | null): void {
  if (value !== null && !isHost(value)) failField("Host", "format", "must be one valid host name");
}
