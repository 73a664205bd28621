/**
 * What an operator watches, in the text format of Prometheus.
 * @see https://prometheus.io/docs/practices/naming/
 */
import { Elysia } from "elysia";
import type { Metric } from "prom-client";
import Counter from "prom-client/lib/counter.js";
import Gauge from "prom-client/lib/gauge.js";
import Histogram from "prom-client/lib/histogram.js";
import Registry from "prom-client/lib/registry.js";
import type { OnCommit, Store } from "../store.ts";
import type { Authorization } from "./auth.ts";
import { no_query } from "./query.ts";
import {
  createRequestMetrics,
  DURATIONS_S,
  type MetricFamily,
  type RequestMetrics,
} from "./request-metrics.ts";

const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];

export interface Metrics {
  readonly observeRequest: RequestMetrics["observe"];
  readonly observeCommit: OnCommit;
  /** @returns the text, with the store's own figures of this moment */
  readonly render: (store: Store) => Promise<string>;
  readonly content_type: string;
}

/**
 * The figures that every Prometheus client has of its process. Not the library's own: those measure the
 * event loop by a timer of 10 ms, all the time.
 */
function addProcessMetrics(registers: Registry[]): void {
  new Counter({
    name: "process_cpu_seconds_total",
    help: "CPU time of the process, in user and kernel mode.",
    registers,
    collect() {
      const { user, system } = process.cpuUsage();
      this.reset();
      this.inc((user + system) / 1e6);
    },
  });
  new Gauge({
    name: "process_resident_memory_bytes",
    help: "Memory that the process occupies, mapped files among it.",
    registers,
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });
  new Gauge({
    name: "process_start_time_seconds",
    help: "When the process began, in Unix time.",
    registers,
  }).set(Math.round(Date.now() / 1000 - process.uptime()));
}

/** Adds what is counted elsewhere: of a metric the registry only asks its text. */
function addMetricFamily(register: Registry, read: () => MetricFamily): void {
  const { name } = read();
  const metric = { name, get: async () => read() };
  register.registerMetric(metric as unknown as Metric<string>);
}

/** @param droppedLogLines how many, since the start */
export function createMetrics(droppedLogLines = () => 0): Metrics {
  const register = new Registry();
  const registers = [register];
  addProcessMetrics(registers);
  const requests = createRequestMetrics();
  addMetricFamily(register, requests.counts);
  addMetricFamily(register, requests.durations);
  const batch_sizes = new Histogram({
    name: "user_api_commit_batch_size",
    help: "Writes that shared a transaction.",
    buckets: BATCH_SIZES,
    registers,
  });
  const commit_durations = new Histogram({
    name: "user_api_commit_duration_seconds",
    help: "From the begin of a transaction until it was on disk.",
    buckets: DURATIONS_S,
    registers,
  });
  new Counter({
    name: "user_api_dropped_log_lines_total",
    help: "Log lines that were not written, because nobody read them in time or the write failed.",
    registers,
    collect() {
      this.reset();
      this.inc(droppedLogLines());
    },
  });
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers });
  const pending = gauge("user_api_pending_writes", "Writes that wait for the disk.");
  const database = gauge("user_api_database_bytes", "Size of the database file.");
  const unsent = gauge(
    "user_api_unsent_bytes",
    "Memory of large pages that are being built or sent, in bytes.",
  );
  const wal = gauge("user_api_wal_bytes", "Size of the write-ahead log.");

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

export function metricsRoute(store: Store, authorization: Authorization, metrics: Metrics) {
  return new Elysia().use(authorization).get(
    "/api/v1/metrics",
    ({ set }) => {
      set.headers["content-type"] = metrics.content_type;
      return metrics.render(store);
    },
    { query: no_query },
  );
}
