/** The address of a client whose request is rejected, for the log: who guesses tokens, or calls too often. */
import type { Config } from "../../domain/config.ts";
import type { Connections } from "./connections.ts";

const REJECTED: readonly number[] = [401, 429, 503];
/** Also with a port, as some proxies write it. A client can send anything. */
const ADDRESS = /^[\da-f.:[\]]{2,50}$/i;

export type RejectedAddress = ReturnType<typeof createRejectedAddress>;

export function createRejectedAddress(
  { addressOf }: Pick<Connections, "addressOf">,
  { logClients, trustedProxies }: Pick<Config, "logClients" | "trustedProxies">,
) {
  return (request: Request, status: number): string | undefined => {
    if (!logClients || !REJECTED.includes(status)) return undefined;
    let calls = trustedProxies === 0 ? null : request.headers.get("x-forwarded-for");
    calls ??= addressOf(request) ?? "";
    // Each proxy has appended who called it. What is before can be forged, and have thousands of entries.
    for (let proxy = 1; proxy < trustedProxies && calls.includes(","); proxy += 1)
      calls = calls.slice(0, calls.lastIndexOf(","));
    const address = calls.slice(calls.lastIndexOf(",") + 1).trim();
    return ADDRESS.test(address) ? address : undefined;
  };
}
