import { readConfig } from "../../src/domain/config.ts";
import { createReplaceableStore } from "../../src/domain/replaceable-store.ts";
import { createApp } from "../../src/http/app.ts";
import { connectionsOf } from "../../src/http/connections/connections.ts";
import { createDrain } from "../../src/http/connections/drain.ts";
import { createMetrics } from "../../src/http/metrics/metrics.ts";

/** An app without a server, whose log is silent unless parts of it are given. */
export function makeApp(
  log: object = {},
  environment = {},
  stores = createReplaceableStore(),
  drain = createDrain(),
) {
  return createApp({
    ...{ stores, drain, config: readConfig(environment), version: "0.0.0" },
    log: { enabled: () => false, warn() {}, error() {}, ...log } as never,
    now: () => new Date(),
    metrics: createMetrics({ version: "", commit: "", schema: 1 }),
    connections: connectionsOf(new Set()),
  });
}
