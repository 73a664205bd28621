import { styleText } from "node:util";
import { type Config, readConfig } from "../config.ts";
import { isPostgres, redactPassword } from "../database-url.ts";
import { fail, messageOf } from "../error.ts";
import { createApp } from "../http/app.ts";
import { createDrain } from "../http/drain.ts";
import { createMetrics } from "../http/metrics.ts";
import { listen } from "../http/server.ts";
import { type ApplyStyle, createLog } from "../log.ts";
import { hashToken, newToken, type TokenStore } from "../token.ts";
import { localUrl } from "./local-url.ts";
import type { CommandSystem } from "./system.ts";

/** The caller has checked that stdout is a terminal. */
const applyStyle: ApplyStyle = (style, text) => styleText(style, text, { validateStream: false });

/** How often expired idempotency keys are deleted. */
const CLEANUP_INTERVAL_MS = 10 * 60 * 1000;

/**
 * @returns the new token; `null` if the database has or had any token
 * @throws {AppError} operator if the database cannot be written
 */
async function createFirstToken(tokens: TokenStore, config: Config): Promise<string | null> {
  const token = newToken();
  const created_token = await tokens
    .createFirst({ hash: hashToken(token), name: "first", scope: "write", expires_at: null })
    .catch((error) =>
      fail("operator", `Cannot write ${redactPassword(config.database_url)}: ${messageOf(error)}`),
    );
  return created_token && token;
}

/**
 * @param url an address that works on this machine
 * @param create_token the command that creates a token in the same database
 */
function welcome(token: string, url: string, create_token: string): string {
  const rule = "─".repeat(72);
  return `
${rule}
Created the first access token ("first"). It will not be shown again:

  ${token}

Try it:

  curl -H 'Authorization: Bearer ${token}' ${url}/api/v1/users

API reference:         ${url}/api/v1/docs
Create another token:  ${create_token}
${rule}

`;
}

/**
 * Serves until a signal or an uncaught error, then completes open requests and closes.
 * @throws {AppError} operator if a setting, the database or the port prevents the start
 * @throws the uncaught error that stopped the server, after everything is closed
 */
export async function serve(version: string, system: CommandSystem): Promise<void> {
  const config = readConfig(system.environment, system.flags);
  const format = config.log_format ?? (system.stdout_is_terminal ? "text" : "json");
  const output = system.openLog();
  const has_colors = system.stdout_is_terminal && !system.environment["NO_COLOR"];
  const log = createLog({
    level: config.log_level,
    format,
    now: system.now,
    write: output.write,
    ...(has_colors ? { style: applyStyle } : {}),
  });
  output.onResume((lines) => log.warn("log lines dropped", { lines }));
  // Listen for signals early, so that one during startup is not missed.
  const stopped = system.untilStopped();
  await using resources = new AsyncDisposableStack();

  const metrics = createMetrics(version, output.droppedLines);
  const onCommit = metrics.observeCommit;
  const onStorageProblem = (problem: string | null) => {
    if (problem === null) log.info("writes resumed");
    else log.error("writes rejected", { reason: problem });
  };
  const options = { ...config, now: system.now, onCommit, onStorageProblem };
  const store = resources.adopt(
    await system.backendOf(config.database_url).open({ ...options, exclusive: true, create: true }),
    (opened) => opened.close(),
  );
  const drain = createDrain();
  const app = createApp({ store, config, log, now: system.now, metrics, drain, version });
  const timeout_ms = config.shutdown_seconds * 1000;
  let drain_ms = 0;
  const listener = resources.adopt(await listen(app, config, log), (listening) =>
    listening.stop(Math.max(0, timeout_ms - drain_ms)),
  );
  // In a container, the host is 0.0.0.0, which is not an address to open.
  const url = localUrl(listener.url);
  const { host, database_url } = config;
  log.info("listening", { url, host, database: redactPassword(database_url) });

  // With API_TOKEN the operator has a token already, and the logs of a container are often stored.
  const first_token =
    config.api_token === null ? await createFirstToken(store.tokens, config) : null;
  // stdout has only log lines, for programs that parse it.
  if (first_token !== null) {
    const path = system.flags.database_url;
    // The URL of PostgreSQL can contain a password.
    const is_shown = path !== undefined && !isPostgres(path);
    const database_flag = is_shown ? ` --database-url ${path}` : "";
    system.stderr(welcome(first_token, url, `${system.program} token create NAME${database_flag}`));
  }

  const deleteExpiredKeys = () =>
    store
      .deleteExpiredKeys()
      .catch((error) =>
        log.warn("cleanup of expired idempotency keys failed", { reason: messageOf(error) }),
      );
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
