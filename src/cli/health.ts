import { connectionProblem, fail, fileProblem, messageOf } from "../base/error.ts";
import type { Config } from "../domain/config.ts";
import { isSocketPath } from "../domain/settings.ts";
import type { CommandSystem } from "./system/system.ts";

const TIMEOUT_MS = 2_000;

/** @returns the URL for a client on this machine, also without IPv6. With `::`, a server listens on IPv4 as well */
export function localUrl(url: string): string {
  return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//127.0.0.1:");
}

function healthUrl({ host, port, tlsCert }: Config): string {
  if (isSocketPath(host)) return "http://localhost/api/v1/health";
  const authority = host.includes(":") ? `[${host}]` : host;
  const scheme = tlsCert === null ? "http" : "https";
  return localUrl(`${scheme}://${authority}:${port}/api/v1/health`);
}

/** E.g. for the HEALTHCHECK of a container. @throws {AppError} operator if the server does not respond with 200 */
export async function checkHealth({ config, stdout }: CommandSystem): Promise<void> {
  const url = healthUrl(config);
  const unix = isSocketPath(config.host) ? config.host : undefined;
  const place = unix ?? url;
  const { status } = await fetch(url, {
    ...(unix && { unix }),
    redirect: "manual",
    // It stays on this machine, whatever HTTP_PROXY says.
    proxy: false,
    signal: AbortSignal.timeout(TIMEOUT_MS),
    // The certificate does not contain the address.
    tls: { rejectUnauthorized: false },
  }).catch((error) => {
    const problem = connectionProblem(error) ?? fileProblem(error) ?? messageOf(error);
    fail("operator", `Cannot connect to ${place}: ${problem}`);
  });
  if (status !== 200) fail("operator", `${place} is unhealthy: status ${status}`);
  stdout("ok\n");
}
