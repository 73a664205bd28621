/** The address of a client whose request is rejected, for the log: who guesses tokens, or calls too often. */
import type { Config } from "../../domain/config.ts";
import type { Connections } from "./connections.ts";

const REJECTED: readonly number[] = [401, 429, 503];

/** As proxies write it, some with a port. `::ffff:` is how a socket of IPv6 shows IPv4. */
const IPV4 = /^(?:::ffff:)?(\d{1,3}(?:\.\d{1,3}){3})(?::\d+)?$/i;
const IPV6 = /^\[?([\da-f]{0,4}:[\da-f:.]{1,40})(?:\](?::\d+)?)?$/i;

/** @returns the address, if it is one: a client can send anything */
function parseAddress(text: string): string | undefined {
  return (IPV4.exec(text) ?? IPV6.exec(text))?.[1];
}

/** @returns the address of the client of a rejected request; `undefined` for all other requests, or if it is not known */
export type RejectedAddress = (request: Request, status: number) => string | undefined;

export function createRejectedAddress(
  { addressOf }: Pick<Connections, "addressOf">,
  { logClients, trustedProxies }: Pick<Config, "logClients" | "trustedProxies">,
): RejectedAddress {
  return (request, status) => {
    if (!logClients || !REJECTED.includes(status)) return undefined;
    let calls = trustedProxies === 0 ? null : request.headers.get("x-forwarded-for");
    if (calls === null) return parseAddress(addressOf(request) ?? "");
    // Each proxy has appended the address that it was called from. What is before those of trusted ones can be forged, and
    // have thousands of entries.
    for (let proxy = 1; proxy < trustedProxies && calls.includes(","); proxy += 1)
      calls = calls.slice(0, calls.lastIndexOf(","));
    return parseAddress(calls.slice(calls.lastIndexOf(",") + 1).trim());
  };
}
