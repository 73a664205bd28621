/**
 * Metrics in the text format of Prometheus.
 * @see https://prometheus.io/docs/practices/naming/
 */
import { Elysia } from "elysia";
import type { Metric } from "prom-client";
import Counter from "prom-client/lib/counter.js";
import Gauge from "prom-client/lib/gauge.js";
import Histogram from "prom-client/lib/histogram.js";
import Registry from "prom-client/lib/registry.js";
import type { OnCommit, Store } from "../store.ts";
import { noQuery } from "./query.ts";
import {
  createRequestMetrics,
  DURATIONS_S,
  type MetricFamily,
  type RequestMetrics,
} from "./request-metrics.ts";
import { route } from "./route.ts";

const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];

export interface Metrics {
  readonly observeRequest: RequestMetrics["observe"];
  readonly observeCommit: OnCommit;
  /** @returns the text, including the current statistics of the store */
  readonly render: (store: Store) => Promise<string>;
  readonly content_type: string;
}

/**
 * The standard process metrics of Prometheus. Those of the library are not used, because they run a timer every
 * 10 ms to measure the event loop.
 */
function addProcessMetrics(registers: Registry[]): void {
  new Counter({
    name: "process_cpu_seconds_total",
    help: "User and system CPU time, in seconds.",
    registers,
    collect() {
      const { user, system } = process.cpuUsage();
      this.reset();
      this.inc((user + system) / 1e6);
    },
  });
  new Gauge({
    name: "process_resident_memory_bytes",
    help: "Resident memory, including mapped files, in bytes.",
    registers,
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });
  new Gauge({
    name: "process_start_time_seconds",
    help: "Start time of the process, in seconds since the Unix epoch.",
    registers,
  }).set(Math.round(Date.now() / 1000 - process.uptime()));
}

/** Adds metrics that are counted elsewhere: the registry only needs to read them. */
function addMetricFamily(register: Registry, read: () => MetricFamily): void {
  const { name } = read();
  const metric = { name, get: async () => read() };
  register.registerMetric(metric as unknown as Metric<string>);
}

/**
 * @param version of the program
 * @param droppedLogLines returns the number of lines since the start
 */
export function createMetrics(version: string, droppedLogLines = () => 0): Metrics {
  const register = new Registry();
  const registers = [register];
  addProcessMetrics(registers);
  new Gauge({
    name: "user_api_build_info",
    help: "Always 1. The label has the version of the program.",
    labelNames: ["version"],
    registers,
  }).set({ version }, 1);
  const requests = createRequestMetrics();
  addMetricFamily(register, requests.counts);
  addMetricFamily(register, requests.durations);
  const batch_sizes = new Histogram({
    name: "user_api_commit_batch_size",
    help: "Writes per transaction.",
    buckets: BATCH_SIZES,
    registers,
  });
  const commit_durations = new Histogram({
    name: "user_api_commit_duration_seconds",
    help: "Time from BEGIN until the transaction is on disk, in seconds.",
    buckets: DURATIONS_S,
    registers,
  });
  new Counter({
    name: "user_api_dropped_log_lines_total",
    help: "Log lines that were dropped because the reader was too slow or a write failed.",
    registers,
    collect() {
      this.reset();
      this.inc(droppedLogLines());
    },
  });
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers });
  const pending = gauge("user_api_pending_writes", "Queued writes.");
  const database = gauge("user_api_database_bytes", "Size of the database file, in bytes.");
  const unsent = gauge(
    "user_api_unsent_bytes",
    "Memory of large pages that are being built or sent, in bytes.",
  );
  const wal = gauge("user_api_wal_bytes", "Size of the write-ahead log, in bytes.");

  return {
    observeRequest: requests.observe,
    observeCommit(writes, duration_ms) {
      batch_sizes.observe(writes);
      commit_durations.observe(duration_ms / 1000);
    },
    async render(store) {
      const { pending_writes, unsent_bytes, database_bytes, wal_bytes } = await store.statistics();
      pending.set(pending_writes);
      unsent.set(unsent_bytes);
      database.set(database_bytes);
      wal.set(wal_bytes);
      return register.metrics();
    },
    content_type: register.contentType,
  };
}

export function metrics() {
  return new Elysia({ tags: ["system"] }).get("/api/v1/metrics", ...getMetrics);
}

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
          type: Registry.PROMETHEUS_CONTENT_TYPE,
          schema: { type: "string" },
        },
      },
    },
  },
  ({ head, store, metrics: { render, content_type } }) => {
    head.headers["content-type"] = content_type;
    return render(store);
  },
);
