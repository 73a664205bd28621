import { AppError, fail, failField } from "../../base/error.ts";
import { failNotPrimary, Health, HealthQuery, requireRecent } from "../../domain/health.ts";
import { jsonText } from "../../domain/record.ts";
import { querySchema } from "../input/query.ts";
import { PROMETHEUS_CONTENT_TYPE } from "../metrics/prometheus.ts";
import { object, text } from "../openapi/components.ts";
import { envelopeDoc } from "../openapi/detail.ts";
import { envelopeBody } from "../output/bodies.ts";
import { route, routesAt } from "./route.ts";

export function system() {
  return routesAt("/api/v1", "system")
    .get("/health", ...getHealth)
    .get("/openapi.json", ...getOpenapi)
    .get("/metrics", ...getMetrics);
}

const healthBody = (health: Health) => envelopeBody(jsonText(health));

const getHealth = route(
  {
    public: true,
    query: querySchema(HealthQuery),
    operationId: "getHealth",
    summary: "Check health",
    description:
      "Healthy means that the server accepts requests and can write to the database. A read-only server returns `read_only`, and only needs to read the database; so does a `standby`, which is `seconds_behind` the primary: at most 60. With an archive, `archive` says how far it is behind. `waiting`, or the error, is what it waits for.",
    response: envelopeDoc("The server is healthy", Health, { status: "ok" }),
    errors: ["unavailable"],
  },
  async ({ query }, services) => {
    const { live, primary } = query;
    if (live !== undefined && primary !== undefined)
      failField("primary", "not_allowed", "cannot be combined with live", { allowed: ["live"] });
    if (live !== undefined) return healthBody({ status: "live" });
    const { drain, store, stores, config } = services;
    if (drain.isDraining()) fail("unavailable", "the server is shutting down");
    if (primary !== undefined && !store.isPrimary()) failNotPrimary();
    const waitsFor = stores.waitsFor();
    await store.checkUsable().catch((error) => {
      if (waitsFor === null || !(error instanceof AppError)) throw error;
      fail("unavailable", `${error.message}: the server waits for ${waitsFor}`);
    });
    const age = requireRecent(store, waitsFor);
    const waiting = waitsFor !== null && { waiting: waitsFor };
    if (age !== null)
      return healthBody({ status: "standby", seconds_behind: Math.ceil(age), ...waiting });
    const state = store.archive();
    return healthBody({
      status: config.readOnly ? "read_only" : "ok",
      ...(state !== null && {
        archive: { seconds_behind: state.secondsBehind, bytes_behind: state.bytesBehind },
      }),
      ...waiting,
    });
  },
);

const getOpenapi = route(
  {
    public: true,
    operationId: "getOpenapi",
    summary: "Get this document",
    description: "`user-api openapi` prints the same document.",
    response: {
      description: "This document",
      schema: object({ openapi: text }),
      example: { openapi: "3.1.0" },
    },
    errors: ["unavailable"],
  },
  (_call, { document }) => document(),
);

const getMetrics = route(
  {
    operationId: "getMetrics",
    summary: "Prometheus metrics",
    description: "Requests by route and status, their durations, commits, sizes and memory.",
    response: {
      description: "The metrics in the text format of Prometheus",
      type: PROMETHEUS_CONTENT_TYPE,
      schema: text,
    },
  },
  ({ head }, { stores, metrics, waitingClients, responseMemory }) => {
    head.headers["content-type"] = PROMETHEUS_CONTENT_TYPE;
    return metrics.render(stores, waitingClients.count(), responseMemory.bytes());
  },
);
