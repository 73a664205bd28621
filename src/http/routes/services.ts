/** What the handlers of routes and the pipeline share while an app runs. */
import { createExpiryLog } from "../../base/expiry.ts";
import type { Log } from "../../base/log.ts";
import type { Config } from "../../domain/config.ts";
import type { ReplaceableStore } from "../../domain/replaceable-store.ts";
import { isSocketPath } from "../../domain/settings.ts";
import type { Connections } from "../connections/connections.ts";
import type { Drain } from "../connections/drain.ts";
import { createAuthenticator } from "../input/authentication.ts";
import { createHostCheck } from "../input/headers.ts";
import type { JsonSchema } from "../input/input.ts";
import { createResponseMemory, createWriteMemory } from "../limits/memory.ts";
import { createRateLimiter } from "../limits/rate-limit.ts";
import { createSumQueue } from "../limits/sum-queue.ts";
import { createWaitingClients } from "../limits/waiting-clients.ts";
import { createYieldToClients } from "../limits/yielding.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { RouteEntry } from "../openapi/detail.ts";
import { documentJson } from "../openapi/document.ts";
import { createReusedHeaders, type JsonBlob } from "../output/bodies.ts";
import { createCors } from "../output/cors.ts";
import { createServerErrorLog } from "../output/error-responses.ts";
import { createUnmatched } from "./unmatched.ts";

export interface AppOptions {
  readonly stores: ReplaceableStore;
  readonly config: Config;
  readonly log: Log;
  readonly now: () => Date;
  readonly metrics: Metrics;
  readonly drain: Drain;
  readonly connections: Connections;
  readonly version: string;
}

export type Services = ReturnType<typeof createServices>;

export function createServices(options: AppOptions, routes: readonly RouteEntry[]) {
  const { stores, config, log, now, metrics, drain, connections, version } = options;
  const cors = createCors(config.corsOrigin);
  const tokenExpiry = createExpiryLog("token", now, log);
  metrics.addValidity("token", tokenExpiry.first);
  let document: JsonBlob<JsonSchema> | null = null;
  return {
    ...options,
    /** That of the moment. Get it anew after waiting. @throws {AppError} unavailable if there is none */
    get store() {
      return stores.use();
    },
    cors,
    reusedHeaders: createReusedHeaders(),
    responseMemory: createResponseMemory(connections, isSocketPath(config.host)),
    ...createAuthenticator(stores.use, config, now, tokenExpiry),
    requireHost: createHostCheck(),
    yieldToClients: createYieldToClients(),
    queueSum: createSumQueue(),
    waitingClients: createWaitingClients(stores.subscribe, drain),
    // One `Blob`: Bun copies text for each response, so that clients that do not read would fill the memory.
    document: () => (document ??= new Blob([documentJson(version, routes)])),
    unmatched: createUnmatched(cors, routes),
    requireWithinRate: createRateLimiter(config.rateLimit),
    reserveWrite: createWriteMemory(),
    logServerError: createServerErrorLog(log),
  };
}
