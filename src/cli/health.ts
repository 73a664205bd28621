import { type Config, type Flags, readConfig } from "../config.ts";
import { fail, reason } from "../error.ts";
import type { Io } from "./io.ts";

const TIMEOUT_MS = 2_000;

/** Where a server with these settings answers on this machine. */
function addressOf({ host, port, tls_cert }: Config): string {
  const any: Record<string, string> = { "0.0.0.0": "127.0.0.1", "::": "::1" };
  const reachable = any[host] ?? host;
  const authority = reachable.includes(":") ? `[${reachable}]` : reachable;
  return `${tls_cert === null ? "http" : "https"}://${authority}:${port}/api/v1/health`;
}

function whyNot(error: unknown): string {
  if (!(error instanceof Error)) return reason(error);
  if (error.name === "TimeoutError") return `no answer within ${TIMEOUT_MS} ms`;
  const refused = "code" in error && /REFUSED/i.test(String(error.code));
  return refused ? "nothing listens there" : error.message;
}

/**
 * Asks the running server, e.g. for a container's HEALTHCHECK.
 * @throws {AppError} operator when it does not answer, or not that it is well
 */
export async function checkHealth(flags: Flags, io: Io): Promise<void> {
  const url = addressOf(readConfig(io.environment, flags));
  const response = await fetch(url, {
    signal: AbortSignal.timeout(TIMEOUT_MS),
    // It asks itself, by an address that no certificate names.
    tls: { rejectUnauthorized: false },
  }).catch((error) => fail("operator", `Cannot reach ${url}: ${whyNot(error)}`));
  if (!response.ok) fail("operator", `Cannot call ${url} healthy: it answers ${response.status}`);
  io.stdout("ok\n");
}
