import { get as getHttp } from "node:http";
import { get as getHttps } from "node:https";
import { type Config, type Flags, readConfig } from "../config.ts";
import { fail, messageOf, systemCode } from "../error.ts";
import type { Io } from "./context.ts";
import { localUrl } from "./local-url.ts";

const TIMEOUT_MS = 2_000;

/** @returns the URL of the server with these settings, as seen from this machine */
function healthUrl({ host, port, tls_cert }: Config): string {
  const authority = host.includes(":") ? `[${host}]` : host;
  const scheme = tls_cert === null ? "http" : "https";
  return localUrl(`${scheme}://${authority}:${port}/api/v1/health`);
}

/**
 * `fetch` is not used, because it honours HTTP_PROXY.
 * @returns the status code; rejects if there is no response
 */
function fetchStatus(url: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const get = url.startsWith("https:") ? getHttps : getHttp;
    // The request stays on this machine and uses an address that is not in the certificate.
    const request = get(
      url,
      { agent: false, rejectUnauthorized: false, timeout: TIMEOUT_MS },
      (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      },
    );
    request.on("timeout", () =>
      request.destroy(new Error(`no response within ${TIMEOUT_MS / 1000} seconds`)),
    );
    request.on("error", reject);
  });
}

const connection_errors: Record<string, string> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "the connection was closed",
  ENOTFOUND: "unknown host",
  EAI_AGAIN: "unknown host",
  EHOSTUNREACH: "host unreachable",
  ENETUNREACH: "network unreachable",
  EADDRNOTAVAIL: "address not available",
};

/**
 * Checks the running server, e.g. for the HEALTHCHECK of a container.
 * @throws {AppError} operator if the server does not respond, or not with 200
 */
export async function checkHealth(flags: Flags, io: Io): Promise<void> {
  const url = healthUrl(readConfig(io.environment, flags));
  const status = await fetchStatus(url).catch((error) =>
    fail(
      "operator",
      `Cannot connect to ${url}: ${connection_errors[systemCode(error)] ?? messageOf(error)}`,
    ),
  );
  if (status !== 200) fail("operator", `${url} is unhealthy: status ${status}`);
  io.stdout("ok\n");
}
