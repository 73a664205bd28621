import { chmodSync } from "node:fs";
import { isPostgres } from "../base/database-url.ts";
import { fail, messageOf } from "../base/error.ts";
import { endsSoon } from "../base/expiry.ts";
import { createLog, type Log } from "../base/log.ts";
import type { ArchiveOptions } from "../domain/archive.ts";
import { createReplaceableStore } from "../domain/replaceable-store.ts";
import { isSocketPath } from "../domain/settings.ts";
import type { Store, StoreMode } from "../domain/store.ts";
import { createDrain } from "../http/connections/drain.ts";
import { readTls, validityOf } from "../http/connections/tls.ts";
import { createMetrics } from "../http/metrics/metrics.ts";
import { listen } from "../http/server.ts";
import { build } from "./build.ts";
import { startCleanUp } from "./clean-up.ts";
import { printFirstToken, requireOwnApiToken } from "./first-token.ts";
import { localUrl } from "./health.ts";
import { startReloading } from "./reload.ts";
import { type CommandSystem, nameDatabase, type StopReason, stopSignal } from "./system/system.ts";
import { removeStaleSocket } from "./system/unix-socket.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

/** Each connection needs an open file. Below this limit few clients exhaust it, and then no one can connect. */
const MIN_OPEN_FILES = 4096;
/** Memory per connection: up to 20 KiB without a complete request. The rest is for the database and for other limits. */
const BYTES_PER_CONNECTION = 2 ** 16;

/** @returns `null` without an archive, and for a server that only reads */
function archiveOptions(
  { config, environment, createArchiveWorker }: CommandSystem,
  log: Log,
  signal: AbortSignal,
  options: Pick<ArchiveOptions, "onStopped" | "onSuperseded" | "onWaiting" | "wasSuperseded">,
): ArchiveOptions | null {
  if (config.archiveUrl === null || config.readOnly) return null;
  // Its thread needs no other secrets.
  const variables = Object.entries(environment).filter(([name]) =>
    /^(?:S3_|AWS_|ARCHIVE_KEY)|^(?:https?|all)_proxy$/i.test(name),
  );
  return {
    url: config.archiveUrl,
    environment: Object.fromEntries(variables),
    createWorker: createArchiveWorker,
    intervalMs: config.archiveSeconds * 1000,
    commit: config.archiveCommit,
    restore: config.archiveRestore,
    keepMs: config.archiveDays * DAY_MS,
    standby: config.standby,
    takeoverMs: config.takeoverSeconds * 1000,
    onLog: (level, event, fields) => log[level](event, fields),
    ...options,
    signal,
  };
}

/** Bounds connections by open files, because Bun accepts every one. @returns the limit */
function limitOpenFiles({ memoryBytes, sockets }: CommandSystem, log: Log): number {
  const most = Math.floor(memoryBytes / BYTES_PER_CONNECTION);
  const least = Math.min(MIN_OPEN_FILES, most);
  const limit = sockets.limitOpenFiles(most);
  const warn = (advice: string) =>
    log.warn("unsafe setup", { reason: `the limit of open files is ${limit}: ${advice}` });
  if (limit < least) warn(`raise it to ${least} or more`);
  if (limit > most) warn(`lower it to ${most}, for which the memory is enough`);
  return limit;
}

async function startListening(
  system: CommandSystem,
  resources: AsyncDisposableStack,
  app: Omit<Parameters<typeof listen>[0], "drain" | "sharePort">,
  schema: number,
): Promise<string> {
  const { config, log } = app;
  const { host } = config;
  const { database, sockets } = system;
  const limit = limitOpenFiles(system, log);
  const timeoutMs = config.shutdownSeconds * 1000;
  const drain = createDrain();
  const isSocket = isSocketPath(host);
  if (isSocket) await removeStaleSocket(host);
  const listener = await listen({ ...app, drain, sharePort: () => sockets.sharePort(limit) });
  resources.defer(async () => {
    const drainMs = await drain.start(timeoutMs);
    await listener.stop(Math.max(0, timeoutMs - drainMs));
  });
  // For a proxy of the group. Until now, only this user can connect: see the umask in main.ts.
  if (isSocket) chmodSync(host, 0o660);
  const { port, pendingPorts } = listener;
  const onClosed = (count: number) => log.warn("idle connections closed", { count, limit });
  resources.use(sockets.closeIdle(limit, port, pendingPorts, drain.closeConnections, onClosed));
  resources.use(startReloading(listener.reloadTls, system.onHangup, log));
  // In a container, the host is 0.0.0.0, which is not an address to open.
  const url = localUrl(listener.url);
  const readOnly = config.readOnly || undefined;
  log.info("listening", { url, host, database, ...build, schema, read_only: readOnly });
  return url;
}

/** Checks what the settings name, and opens nothing. @throws {AppError} operator */
function checkSettings(system: CommandSystem): void {
  const certificate = validityOf(readTls(system.config));
  const { archiveUrl, readOnly, tlsCert } = system.config;
  const nowMs = system.now().getTime();
  if (certificate !== null && endsSoon(certificate, nowMs)) {
    const end = new Date(certificate.endMs).toISOString();
    if (nowMs >= certificate.endMs) fail("operator", `TLS_CERT ${tlsCert} expired at ${end}`);
    system.stderr(`TLS_CERT ${tlsCert} expires at ${end}\n`);
  }
  // The credentials. A server that only reads has no archive.
  if (archiveUrl !== null && !readOnly) system.openStorage(archiveUrl, system.environment);
  system.stdout("settings are valid\n");
}

/** @throws the uncaught error that stopped the server, after everything is closed */
export async function serve(system: CommandSystem, options: { check?: boolean }): Promise<void> {
  const { config } = system;
  if (options.check) return checkSettings(system);
  const { databaseUrl, readOnly } = config;
  const output = system.openLog();
  const format = config.logFormat ?? (system.stdoutIsTerminal ? "text" : "json");
  const log = createLog(config.logLevel, format, system.now, output.write);
  output.onResume((lines) => log.warn("log lines dropped", { lines }));
  // Listen for signals early, so that one during startup is not missed.
  const fault = Promise.withResolvers<StopReason>();
  const stopped = Promise.race([system.untilStopped(), fault.promise]);
  await using resources = new AsyncDisposableStack();

  const schema = system.schemaVersions[isPostgres(databaseUrl) ? "PostgreSQL" : "SQLite"];
  const metrics = createMetrics({ ...build, schema }, readOnly, output.droppedLines);
  const stores = createReplaceableStore();
  const app = { stores, config, log, now: system.now, metrics, version: build.version };
  resources.defer(async () => stores.replace(null)?.close());
  const changesMs = config.changesDays * DAY_MS;
  // Before the listener, so that at the end the listener stops first.
  resources.use(startCleanUp(stores.current, changesMs, log));
  let listening: Promise<string> | null = null;
  async function serveStore(store: Store): Promise<string> {
    stores.replace(store);
    await requireOwnApiToken(store.tokens, config).catch((error) => {
      throw nameDatabase(error, system);
    });
    listening ??= startListening(system, resources, app, schema);
    return listening;
  }
  // A standby may restore its copy for minutes. Meanwhile, `/health?live` must respond.
  if (config.standby) listening = startListening(system, resources, app, schema);
  await listening;
  // A server may wait for its archive, restore it, or follow it, for a long time.
  const stopping = stopSignal({ untilStopped: () => stopped });
  const stopFor = (error: unknown) => fault.resolve({ by: "fault", error });
  const mode: StoreMode = readOnly ? "serve-read-only" : "serve";
  const use = {
    mode,
    create: !readOnly,
    now: system.now,
    onCommit: metrics.observeCommit,
    onStorageProblem(problem: string | null) {
      if (problem === null) log.info("writes resumed");
      else log.error("writes rejected", { reason: problem });
    },
    onMigration(from: number, to: number) {
      if (from > 0) log.info("schema migrated", { from, to });
    },
    onWarning: (reason: string) => log.warn("unsafe setup", { reason }),
  };
  const onStandby = (store: Store | null) => {
    if (store === null) stores.replace(null);
    else serveStore(store).catch(stopFor);
  };
  let stop: StopReason | null;
  for (let wasSuperseded = false; ; wasSuperseded = true) {
    const superseded = Promise.withResolvers<null>();
    const archive = archiveOptions(system, log, stopping, {
      // Without its archive, the server would acknowledge writes that are lost with the machine.
      onStopped: stopFor,
      onSuperseded: (error) => (config.standby ? superseded.resolve(null) : stopFor(error)),
      onWaiting: stores.noteWaiting,
      wasSuperseded,
    });
    const store = await system
      .backendOf(databaseUrl)
      .open({ ...config, ...use, onStandby, ...(archive && { archive }) })
      .catch((error) => {
        if (archive === null || !stopping.aborted) throw error;
        return null;
      });
    if (store !== null) {
      const address = await serveStore(store);
      // How long it must have written nothing before its standby takes over.
      if (config.standby) log.info("primary", { takeover_seconds: config.takeoverSeconds });
      await printFirstToken(store.tokens, address, system).catch((error) => {
        // Its archive may have been lost again. Then this server follows.
        if (archive === null || !config.standby) throw error;
        log.error("first token not created", { reason: messageOf(error) });
      });
    }
    // Without a store, the server was stopped while it was opening one.
    stop = await Promise.race([stopped, superseded.promise]);
    if (stop !== null) break;
    // The next opening follows the server that has taken over.
    stores.replace(null);
    // On a disk that fails. The next opening waits until the files are free.
    await store?.close().catch((error) => {
      if (!config.standby) throw error;
      log.error("database not closed", { reason: messageOf(error) });
    });
  }

  if (stop.by === "signal") log.info("stopping", { signal: stop.signal });
  else log.error("stopping", { reason: messageOf(stop.error) });
  await resources.disposeAsync();
  log.info("stopped");
  if (stop.by === "fault") throw stop.error;
}
