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
import type { Gate } from "./auth.ts";
import { noQuery } from "./params.ts";
import { createRequests, DURATIONS_S, type MetricText, type Requests } from "./requests.ts";

const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];

export interface Metrics {
  readonly answered: Requests["answered"];
  readonly committed: OnCommit;
  /** @returns the text, with the store's own figures of this moment */
  readonly read: (store: Store) => Promise<string>;
  readonly content_type: string;
}

/**
 * The figures that every Prometheus client has of its process. Not the library's own: those measure the
 * event loop by a timer of 10 ms, all the time.
 */
function addProcess(registers: Registry[]): void {
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
function addText(register: Registry, read: () => MetricText): void {
  const { name } = read();
  const metric = { name, get: async () => read() };
  register.registerMetric(metric as unknown as Metric<string>);
}

/** @param droppedLogLines how many, since the start */
export function createMetrics(droppedLogLines = () => 0): Metrics {
  const register = new Registry();
  const registers = [register];
  addProcess(registers);
  const requests = createRequests();
  addText(register, requests.counts);
  addText(register, requests.durations);
  const batches = new Histogram({
    name: "user_api_commit_writes",
    help: "Writes that shared a transaction.",
    buckets: BATCH_SIZES,
    registers,
  });
  const commits = new Histogram({
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
  const log = gauge("user_api_log_bytes", "Size of the write-ahead log.");

  return {
    answered: requests.answered,
    committed(writes, duration_ms) {
      batches.observe(writes);
      commits.observe(duration_ms / 1000);
    },
    async read(store) {
      const { pending_writes, unsent_bytes, database_bytes, log_bytes } = await store.statistics();
      pending.set(pending_writes);
      unsent.set(unsent_bytes);
      database.set(database_bytes);
      log.set(log_bytes);
      return register.metrics();
    },
    content_type: register.contentType,
  };
}

export function metricsRoute(store: Store, gate: Gate, metrics: Metrics) {
  return new Elysia().use(gate).get(
    "/api/v1/metrics",
    ({ set }) => {
      set.headers["content-type"] = metrics.content_type;
      return metrics.read(store);
    },
    { query: noQuery },
  );
}
