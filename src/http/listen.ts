import type { Config } from "../config.ts";
import { AppError, reason } from "../error.ts";
import type { Log } from "../log.ts";
import type { App } from "./app.ts";
import { internal, logFault } from "./errors.ts";

/** Bun's own limit, above ours, so that ours answers: Bun's 413 has no body. */
const MAX_REQUEST_BYTES = 2 ** 40;
/** How long a connection may be silent. */
const IDLE_TIMEOUT_S = 30;

export interface Listener {
  /** Where it listens, e.g. `http://127.0.0.1:3000`. */
  readonly url: string;
  /**
   * Takes no new requests, waits for those in flight, and cuts what is left at the deadline.
   * @param patience_ms until the deadline
   */
  stop(patience_ms: number): Promise<void>;
}

function readTls({ tls_cert, tls_key }: Config) {
  return tls_cert === null || tls_key === null
    ? {}
    : { tls: { cert: Bun.file(tls_cert), key: Bun.file(tls_key) } };
}

/** The last resort: what escapes Elysia's own error handling, such as `throw null`, is our fault. */
function lastResort(log: Log) {
  return (error: unknown) => {
    logFault(log, error, undefined);
    const headers = { "content-type": "text/plain; charset=utf-8", "cache-control": "no-store" };
    return new Response(internal.text, { status: internal.status, headers });
  };
}

/** @throws {AppError} operator when the port is taken, the address is not ours or TLS is wrong */
export function listen(app: App, config: Config, log: Log): Listener {
  const { host, port } = config;
  try {
    app.listen({
      hostname: host,
      port,
      reusePort: false,
      development: false,
      idleTimeout: IDLE_TIMEOUT_S,
      maxRequestBodySize: MAX_REQUEST_BYTES,
      error: lastResort(log),
      ...readTls(config),
    });
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : "";
    const why = code === "EADDRINUSE" ? "the port is in use" : reason(error);
    throw new AppError("operator", `Cannot listen on ${host}:${port}: ${why}`);
  }
  const { server } = app;
  if (server === null) throw new AppError("operator", `Cannot listen on ${host}:${port}`);
  return {
    url: server.url.origin,
    async stop(patience_ms) {
      const forced = Promise.withResolvers<void>();
      const timer = setTimeout(() => {
        server.stop(true).then(forced.resolve, forced.reject);
      }, patience_ms);
      await Promise.race([server.stop(), forced.promise]);
      clearTimeout(timer);
    },
  };
}
