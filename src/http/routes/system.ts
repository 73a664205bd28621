/** The routes of the server itself: health, the OpenAPI document and metrics. */
import { Elysia } from "elysia";
import { fail } from "../../base/error.ts";
import { jsonText } from "../../domain/record.ts";
import { noQuery } from "../input/query.ts";
import { PROMETHEUS_CONTENT_TYPE } from "../metrics/prometheus.ts";
import { object } from "../openapi/components.ts";
import { enveloped } from "../openapi/detail.ts";
import { envelope } from "../output/bodies.ts";
import { route } from "./route.ts";

export function system() {
  return new Elysia({ prefix: "/api/v1", tags: ["system"] })
    .get("/health", ...getHealth)
    .get("/openapi.json", ...getOpenapi)
    .get("/metrics", ...getMetrics);
}

const statuses = ["ok", "read_only"] as const;

interface Health {
  readonly status: (typeof statuses)[number];
  readonly archive?: { readonly seconds_behind: number; readonly bytes_behind: number };
}

/** How far the archive is behind. Clients see no error of the storage. */
const archive = object({
  seconds_behind: { type: "number", minimum: 0 },
  bytes_behind: { type: "integer", minimum: 0 },
});

const getHealth = route(
  {
    query: noQuery,
    detail: {
      operationId: "getHealth",
      summary: "Check health",
      description:
        "Healthy means that the server accepts requests and can write to the database. A read-only server returns `read_only`, and only needs to read the database. With an archive, `archive` says how far it is behind.",
      security: [],
      responses: {
        200: enveloped(
          "The server is healthy",
          object({ status: { type: "string", examples: statuses }, archive }, ["archive"]),
          { status: "ok" },
        ),
      },
      errors: ["unavailable"],
    },
  },
  async ({ drain, store, readOnly }) => {
    if (drain.isDraining()) fail("unavailable", "the server is shutting down");
    await store.checkUsable();
    const state = store.archive();
    const health: Health = {
      status: readOnly ? "read_only" : "ok",
      ...(state !== null && {
        archive: { seconds_behind: state.secondsBehind, bytes_behind: state.bytesBehind },
      }),
    };
    return envelope(jsonText(health));
  },
);

const getOpenapi = route(
  {
    query: noQuery,
    detail: {
      operationId: "getOpenapi",
      summary: "Get this document",
      description: "`user-api openapi` prints the same document.",
      security: [],
      responses: {
        200: {
          description: "This document",
          schema: {
            type: "object",
            properties: { openapi: { type: "string" } },
            required: ["openapi"],
          },
          example: { openapi: "3.1.0" },
        },
      },
      errors: ["unavailable"],
    },
  },
  ({ document }) => document(),
);

const getMetrics = route(
  {
    query: noQuery,
    detail: {
      operationId: "getMetrics",
      summary: "Prometheus metrics",
      description: "Requests by route and status, their durations, commits, sizes and memory.",
      responses: {
        200: {
          description: "The metrics in the text format of Prometheus",
          type: PROMETHEUS_CONTENT_TYPE,
          schema: { type: "string" },
        },
      },
    },
  },
  ({ head, store, metrics, waitingClients, unsentPages }) => {
    head.headers["content-type"] = PROMETHEUS_CONTENT_TYPE;
    return metrics.render(store, waitingClients.count(), unsentPages.bytes());
  },
);
