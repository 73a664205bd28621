import { fail, fileProblem, messageOf, systemCode } from "../base/error.ts";
import { createExpiryLog } from "../base/expiry.ts";
import type { Config } from "../domain/config.ts";
import { isSocketPath } from "../domain/settings.ts";
import { createApp } from "./app.ts";
import { connectionsOf, IDLE_TIMEOUT_S, type Servers } from "./connections/connections.ts";
import { readTls, type Tls, validityOf } from "./connections/tls.ts";
import type { AppOptions } from "./routes/services.ts";

/** On a Unix socket, Bun ignores the timeout of a single request. Longer than a client may wait for changes. */
const SOCKET_IDLE_TIMEOUT_S = 90;
/** Bun's own limit. Higher than ours, because Bun's 413 has no body. */
const MAX_REQUEST_BYTES = 2 ** 40;

/** Time in which, after a reload, responses close the connections of the previous socket. */
const HANDOVER_MS = 1_000;

const listenErrors: Readonly<Record<string, string>> = {
  EADDRINUSE: "the port is in use: set PORT to another one",
  EADDRNOTAVAIL: "this machine does not have the address",
  EINVAL: "it is not an address of this machine",
  EACCES: "no permission to use the port",
};

async function failToListen({ host, port }: Config, error: unknown): Promise<never> {
  const failBecause = (place: string, problem: string | null | undefined) =>
    fail("operator", `Cannot listen on ${place}: ${problem ?? messageOf(error)}`);
  if (isSocketPath(host)) return failBecause(host, fileProblem(error));
  // For a name without an address, Bun reports the error of an earlier system call.
  await Bun.dns.lookup(host).catch(() => failBecause(`${host}:${port}`, "unknown host"));
  return failBecause(`${host}:${port}`, listenErrors[systemCode(error)]);
}

/** @param sharePort lets a second server listen. @throws {AppError} operator if the address or the TLS files cannot be used */
export async function listen(
  options: Omit<AppOptions, "connections"> & { readonly sharePort: () => boolean },
) {
  const { config, drain, sharePort } = options;
  const servers: Servers = new Set();
  const connections = connectionsOf(servers);
  const app = createApp({ ...options, connections });
  const { host } = config;
  const isSocket = isSocketPath(host);

  async function start(port: number, tls: Tls, reusePort = false): Promise<Bun.Server<unknown>> {
    // By default, a second process could silently share the port. Bun's types have no idle timeout for a Unix socket.
    const address: object = isSocket ? { unix: host } : { hostname: host, port, reusePort };
    try {
      app.listen({
        ...address,
        // Otherwise the response to an uncaught error shows our source code.
        development: false,
        idleTimeout: isSocket ? SOCKET_IDLE_TIMEOUT_S : IDLE_TIMEOUT_S,
        maxRequestBodySize: MAX_REQUEST_BYTES,
        ...tls,
      });
    } catch (error) {
      await failToListen(config, error);
    }
    const { server } = app;
    if (server === null) throw new Error("listening, but without a server");
    servers.add(server);
    return server;
  }

  function stopAccepting(server: Bun.Server<unknown>): void {
    // Resolves when all of its connections are closed.
    void server.stop().then(() => servers.delete(server));
  }

  const expiry = createExpiryLog("certificate", options.now, options.log);
  function noteCertificate(): void {
    const validity = validityOf(tls);
    if (validity !== null) expiry.note(`${config.tlsCert}`, validity);
  }

  let isStopped = false;
  let tls = readTls(config);
  let server = await start(config.port, tls);
  options.metrics.addValidity("certificate", () => validityOf(tls));
  noteCertificate();
  let lastReload: Promise<unknown> = Promise.resolve();

  /** One at a time, because a port has at most two sockets. */
  async function reload(): Promise<boolean> {
    const renewed = readTls(config);
    if (isStopped || Bun.deepEquals(renewed, tls)) return false;
    const previous = server;
    const { port = config.port } = previous;
    // Bun ignores `tls` in `server.reload`.
    const isShared = sharePort();
    if (!isShared) stopAccepting(previous);
    try {
      server = await start(port, renewed, isShared);
      tls = renewed;
    } catch (error) {
      if (!isShared) server = await start(port, tls);
      throw error;
    }
    if (!isShared) return true;
    drain.closeConnections(true);
    await Bun.sleep(HANDOVER_MS);
    drain.closeConnections(false);
    stopAccepting(previous);
    return true;
  }

  return {
    /** The address, e.g. `http://127.0.0.1:3000`, or `unix:/run/user-api/socket`. */
    url: isSocket ? `unix:${host}` : server.url.origin,
    port: server.port,
    pendingPorts: connections.pendingPorts,
    /**
     * Reads the TLS files again, for new connections. @returns whether they have changed: not without TLS, and not after `stop`
     * @throws {AppError} operator if they cannot be used; the previous certificate then stays in use
     */
    reloadTls(): Promise<boolean> {
      const result = lastReload.then(reload).finally(noteCertificate);
      lastReload = result.catch(() => {});
      return result;
    },
    /** Waits for requests in flight, and aborts the rest after this time. */
    async stop(timeoutMs: number): Promise<void> {
      isStopped = true;
      for (const each of servers) stopAccepting(each);
      await connections.untilIdle(timeoutMs);
      await Promise.all([...servers].map((each) => each.stop(true)));
    },
  };
}
