/** @see https://prometheus.io/docs/practices/naming/ */
import type { Validity } from "../../base/expiry.ts";
import type { ReplaceableStore } from "../../domain/replaceable-store.ts";
import type { Store } from "../../domain/store.ts";
import { createHistogram, type Labels, type MetricFamily, renderMetrics } from "./prometheus.ts";

/** Upper bounds of the buckets: from a read in memory to a disk that hangs. */
const DURATIONS_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** A status, or that of a response that leads to another server, which is no failure: 503. */
type Outcome = number | "not_primary";

/** Their counters start at 0: Prometheus does not see the first increase of one that appears with its first value. */
const FAILURES = [500, 503];

function createSeries(method: string, route: string) {
  return {
    labels: { method, route },
    byStatus: new Map<Outcome, number>(FAILURES.map((status) => [status, 0])),
    durationsS: createHistogram(DURATIONS_S),
  };
}

type Series = ReturnType<typeof createSeries>;

function requestMetrics(series: readonly Series[]): MetricFamily[] {
  return [
    {
      name: "http_requests_total",
      help: "Responses. With status 499, the client had disconnected; the reason not_primary is no failure.",
      type: "counter",
      samples: series.flatMap(({ labels, byStatus }) =>
        [...byStatus].map(([status, value]) => {
          const outcome = typeof status === "number" ? { status } : { status: 503, reason: status };
          return { labels: { ...labels, ...outcome }, value };
        }),
      ),
    },
    histogram(
      "http_request_duration_seconds",
      "Time to handle a request, in seconds.",
      series.flatMap(({ labels, durationsS }) => durationsS.samples(labels)),
    ),
  ];
}

const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/** How long `render` waits for the write that tests the database. Prometheus times out after 10 s by default. */
const PROBE_TIMEOUT_MS = 3_000;

const PRIMARY = "it acknowledges writes, as far as it knows";

type Stores = Pick<ReplaceableStore, "current" | "waitsFor">;

export type Metrics = ReturnType<typeof createMetrics>;

function counter(name: string, help: string, value: number): MetricFamily {
  return { name, help, type: "counter", samples: [{ value }] };
}

/** @returns `null` without a value: the metric is not exported then */
function gauge(name: string, help: string, value?: number | null, labels: Labels = {}) {
  return value == null
    ? null
    : { name, help, type: "gauge" as const, samples: [{ labels, value }] };
}

function flag(name: string, condition: string, isTrue: boolean | undefined) {
  return gauge(name, `1 if ${condition}, otherwise 0.`, isTrue === undefined ? null : +isTrue);
}

function validityMetrics(kind: string, validity: Validity | null) {
  const times = Object.entries({ start: validity?.startMs, expiry: validity?.endMs });
  return times.map(([event, timeMs]) => {
    const help = `The ${event} of the ${kind} in use that expires first, in seconds since the Unix epoch.`;
    return gauge(`user_api_${kind}_${event}_timestamp_seconds`, help, timeMs && timeMs / 1000);
  });
}

function histogram(name: string, help: string, samples: MetricFamily["samples"]): MetricFamily {
  return { name, help, type: "histogram", samples };
}

async function measureWritable(store: Store | null): Promise<boolean> {
  if (store === null || store.secondsBehind() !== null) return false;
  const written = store.checkUsable().then(() => true);
  const timeout = Bun.sleep(PROBE_TIMEOUT_MS).then(() => false);
  return Promise.race([written, timeout]).catch(() => false);
}

function processMetrics(startedS: number) {
  const { user, system } = process.cpuUsage();
  const seconds = (user + system) / 1e6;
  return [
    counter("process_cpu_seconds_total", "User and system CPU time, in seconds.", seconds),
    gauge(
      "process_resident_memory_bytes",
      "Resident memory, including mapped files, in bytes.",
      process.memoryUsage.rss(),
    ),
    gauge(
      "process_start_time_seconds",
      "Start time of the process, in seconds since the Unix epoch.",
      startedS,
    ),
  ];
}

async function storeMetrics(store: Store | null): Promise<(MetricFamily | null)[]> {
  if (store === null) return [flag("user_api_primary", PRIMARY, false)];
  const { pendingWrites, databaseBytes, walBytes, freeBytes, lastBackupS } =
    await store.statistics();
  const archive = store.archive();
  // A primary that another server may have replaced has an age, too.
  const ageS = archive === null ? store.secondsBehind() : null;
  return [
    flag("user_api_primary", PRIMARY, store.isPrimary()),
    flag("user_api_standby", "it is a standby", ageS !== null),
    gauge("user_api_standby_seconds_behind", "Age of the data of a standby, in seconds.", ageS),
    gauge("user_api_pending_writes", "Queued writes.", pendingWrites),
    gauge("user_api_database_bytes", "Size of the database file, in bytes.", databaseBytes),
    gauge("user_api_wal_bytes", "Size of the write-ahead log, in bytes.", walBytes),
    gauge("user_api_disk_free_bytes", "Free space for the database, in bytes.", freeBytes),
    gauge(
      "user_api_last_backup_timestamp_seconds",
      "When the last backup was completed, in seconds since the Unix epoch.",
      lastBackupS,
    ),
    flag("user_api_archive_reachable", "the storage has responded lately", archive?.isReachable),
    gauge(
      "user_api_archive_seconds_behind",
      "Age of the oldest write that the archive does not have, in seconds; 0 if it has all of them.",
      archive?.secondsBehind,
    ),
    gauge("user_api_archive_bytes_behind", "Bytes that the archive lacks.", archive?.bytesBehind),
    gauge(
      "user_api_archive_last_base_timestamp_seconds",
      "When the last base of the archive was completed, in seconds since the Unix epoch.",
      archive?.lastBaseS,
    ),
  ];
}

export function createMetrics(
  build: Readonly<Record<"version" | "commit", string> & Record<"schema", number>>,
  readOnly = false,
  droppedLogLines = () => 0,
) {
  // Computed once: the two clocks drift apart, and a new start time would look like a restart.
  const startedS = Math.round(Date.now() / 1000 - process.uptime());
  /** By route and method: one key made of both would have to be built for each request. */
  const requests = new Map<string, Map<string, Series>>();
  const batchSizes = createHistogram(BATCH_SIZES);
  const commitDurationsS = createHistogram(DURATIONS_S);
  const validities: (() => (MetricFamily | null)[])[] = [];

  /** Exports the counters of a route before its first request. */
  function addRoute(method: string, route: string): Series {
    const series = createSeries(method, route);
    requests.getOrInsertComputed(route, () => new Map()).set(method, series);
    return series;
  }

  async function render(stores: Stores, waitingClients = 0, unsentBytes = 0): Promise<string> {
    const store = stores.current();
    const waitsFor = stores.waitsFor();
    // First, because it counts as a pending write.
    const writable = !readOnly && (await measureWritable(store));
    const families: (MetricFamily | null)[] = [
      ...processMetrics(startedS),
      gauge(
        "user_api_build_info",
        "Always 1. The labels have the version and the commit of the program, and that of its schema.",
        1,
        build,
      ),
      ...requestMetrics([...requests.values()].flatMap((methods) => [...methods.values()])),
      histogram("user_api_commit_batch_size", "Writes per transaction.", batchSizes.samples()),
      histogram(
        "user_api_commit_duration_seconds",
        "Time from BEGIN until the transaction is on disk, in seconds.",
        commitDurationsS.samples(),
      ),
      counter(
        "user_api_dropped_log_lines_total",
        "Log lines that were dropped because the reader was too slow or a write failed.",
        droppedLogLines(),
      ),
      flag("user_api_writable", "a test write has succeeded", writable),
      flag("user_api_read_only", "it rejects all writes", readOnly),
      gauge("user_api_waiting_clients", "Clients that wait for changes.", waitingClients),
      gauge(
        "user_api_unsent_bytes",
        "Size of all pages of more than 256 KiB that are built or that clients have not read yet, in bytes.",
        unsentBytes,
      ),
      ...validities.flatMap((measure) => measure()),
      gauge(
        "user_api_waiting_info",
        "Always 1. The label has what a standby waits for before it can follow or take over.",
        waitsFor === null ? null : 1,
        { for: `${waitsFor}` },
      ),
      ...(await storeMetrics(store)),
    ];
    return renderMetrics(families.filter((family) => family !== null));
  }

  return {
    addRoute,
    /** @param route the pattern, not the path, so that the number of labels is bounded */
    observeRequest(method: string, route: string, status: Outcome, durationMs: number): void {
      const series = requests.get(route)?.get(method) ?? addRoute(method, route);
      series.byStatus.set(status, (series.byStatus.get(status) ?? 0) + 1);
      series.durationsS.observe(durationMs / 1000);
    },
    observeCommit(writes: number, durationMs: number): void {
      batchSizes.observe(writes);
      commitDurationsS.observe(durationMs / 1000);
    },
    addValidity(kind: "certificate" | "token", read: () => Validity | null): void {
      validities.push(() => validityMetrics(kind, read()));
    },
    render,
  };
}
