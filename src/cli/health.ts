import { get as getHttp } from "node:http";
import { get as getHttps } from "node:https";
import { type Config, type Flags, readConfig } from "../config.ts";
import { fail } from "../error.ts";
import type { Io } from "./context.ts";

const TIMEOUT_MS = 2_000;

/** Where a server with these settings answers on this machine. */
function healthUrl({ host, port, tls_cert }: Config): string {
  const loopback_of: Record<string, string> = { "0.0.0.0": "127.0.0.1", "::": "::1" };
  const reachable = loopback_of[host] ?? host;
  const authority = reachable.includes(":") ? `[${reachable}]` : reachable;
  return `${tls_cert === null ? "http" : "https"}://${authority}:${port}/api/v1/health`;
}

/**
 * Not `fetch`, which would go through the proxy of HTTP_PROXY.
 * @returns the status; rejects when there is no answer
 */
function fetchStatus(url: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const get = url.startsWith("https:") ? getHttps : getHttp;
    // It asks its own machine, by an address that no certificate names.
    const request = get(url, { rejectUnauthorized: false, timeout: TIMEOUT_MS }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    request.on("timeout", () => request.destroy(new Error(`no answer within ${TIMEOUT_MS} ms`)));
    request.on("error", reject);
  });
}

function describeFailure(error: Error): string {
  return "code" in error && error.code === "ECONNREFUSED" ? "nothing listens there" : error.message;
}

/**
 * Asks the running server, e.g. for a container's HEALTHCHECK.
 * @throws {AppError} operator when it does not answer, or not that it is well
 */
export async function checkHealth(flags: Flags, io: Io): Promise<void> {
  const url = healthUrl(readConfig(io.environment, flags));
  const status = await fetchStatus(url).catch((error) =>
    fail("operator", `Cannot reach ${url}: ${describeFailure(error)}`),
  );
  if (status !== 200) fail("operator", `Cannot call ${url} healthy: it answers ${status}`);
  io.stdout("ok\n");
}
