import { type Config, type Flags, readConfig, redactPassword } from "../config.ts";
import { fail, messageOf } from "../error.ts";
import { createApp } from "../http/app.ts";
import { createDrain } from "../http/drain.ts";
import { createMetrics } from "../http/metrics.ts";
import { listen } from "../http/server.ts";
import { createLog } from "../log.ts";
import { hashToken, newToken, type TokenStore } from "../token.ts";
import type { Io } from "./context.ts";

/** How often expired idempotency keys are forgotten. */
const CLEANUP_INTERVAL_MS = 10 * 60 * 1000;

/**
 * @returns the new token, on a database that has never had one; else `null`
 * @throws {AppError} operator when the database cannot be written
 */
async function createFirstToken(tokens: TokenStore, config: Config): Promise<string | null> {
  const token = newToken();
  const fields = {
    hash: hashToken(token),
    name: "first",
    scope: "write",
    expires_at: null,
  } as const;
  const created_token = await tokens
    .createFirst(fields)
    .catch((error) =>
      fail("operator", `Cannot write ${redactPassword(config.database_url)}: ${messageOf(error)}`),
    );
  return created_token && token;
}

function welcome(token: string, url: string): string {
  return `
The first token, named "first", shown this once:

  ${token}

Try it:

  curl -H 'Authorization: Bearer ${token}' ${url}/api/v1/users

`;
}

/**
 * Serves until the process is asked to stop, then finishes what is in flight and closes.
 * @throws {AppError} operator when a setting, the database or the port does not allow it
 * @throws the fault that stopped it, once all is closed
 */
export async function serve(version: string, flags: Flags, io: Io): Promise<void> {
  const config = readConfig(io.environment, flags);
  const format = config.log_format ?? (io.stdout_is_terminal ? "text" : "json");
  const log = createLog({ level: config.log_level, format, now: io.now, write: io.log.write });
  io.log.onResume((lines) => log.warn("log lines dropped", { lines }));
  // From now on, so that a signal during the start is not missed.
  const stopped = io.untilStopped();
  await using resources = new AsyncDisposableStack();

  const metrics = createMetrics(io.log.droppedLines);
  const onCommit = metrics.observeCommit;
  const onStorageProblem = (problem: string | null) => {
    if (problem === null) log.info("writes accepted again");
    else log.error("writes refused", { reason: problem });
  };
  const options = { ...config, now: io.now, onCommit, onStorageProblem };
  const store = resources.adopt(
    await io.openStore({ ...options, exclusive: true, create: true }),
    (opened) => opened.close(),
  );
  const drain = createDrain();
  const app = createApp({ store, config, log, now: io.now, metrics, drain, version });
  const timeout_ms = config.shutdown_seconds * 1000;
  let drain_ms = 0;
  const listener = resources.adopt(await listen(app, config, log), (listening) =>
    listening.stop(Math.max(0, timeout_ms - drain_ms)),
  );
  log.info("listening", { url: listener.url, database: redactPassword(config.database_url) });

  // With API_TOKEN the operator has one already, and a container's output is kept by others.
  const first_token =
    config.api_token === null ? await createFirstToken(store.tokens, config) : null;
  // stdout holds log lines only, for programs that read it.
  if (first_token !== null) io.stderr(welcome(first_token, listener.url));

  const deleteExpiredKeys = () =>
    store
      .deleteExpiredKeys()
      .catch((error) => log.warn("sweep failed", { reason: messageOf(error) }));
  const cleanup_timer = setInterval(deleteExpiredKeys, CLEANUP_INTERVAL_MS);
  resources.defer(() => clearInterval(cleanup_timer));

  const stop = await stopped;
  if (stop.by === "signal") log.info("stopping", { signal: stop.signal });
  else log.error("stopping", { reason: messageOf(stop.error) });
  drain_ms = await drain.start(timeout_ms);
  await resources.disposeAsync();
  log.info("stopped");
  if (stop.by === "fault") throw stop.error;
}
