/**
 * The metrics of the server.
 * @see https://prometheus.io/docs/practices/naming/
 */
import type { Store } from "../../domain/store.ts";
import { createHistogram, type Histogram, type MetricFamily, renderMetrics } from "./prometheus.ts";
import { createRequestMetrics, DURATIONS_S } from "./request-metrics.ts";

const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/** How long `render` waits for the write that tests the database. Prometheus times out after 10 s by default. */
const PROBE_TIMEOUT_MS = 3_000;

export type Metrics = ReturnType<typeof createMetrics>;

function counter(name: string, help: string, value: number): MetricFamily {
  return { name, help, type: "counter", samples: [{ value }] };
}

/** @returns `null` if there is no value now */
function gauge(name: string, help: string, value: number | null = null): MetricFamily | null {
  return value === null ? null : { name, help, type: "gauge", samples: [{ value }] };
}

function histogram(name: string, help: string, { samples }: Histogram): MetricFamily {
  return { name, help, type: "histogram", samples: samples() };
}

/** @returns 1 if a write succeeds now, otherwise 0 */
function measureWritable(store: Store): Promise<number> {
  if (store.secondsBehind() !== null) return Promise.resolve(0);
  const written = store.checkUsable().then(
    () => 1,
    () => 0,
  );
  return Promise.race([written, Bun.sleep(PROBE_TIMEOUT_MS).then(() => 0)]);
}

/** The standard process metrics of Prometheus. */
function processMetrics(startedS: number) {
  const { user, system } = process.cpuUsage();
  return [
    counter(
      "process_cpu_seconds_total",
      "User and system CPU time, in seconds.",
      (user + system) / 1e6,
    ),
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

async function storeMetrics(store: Store): Promise<(MetricFamily | null)[]> {
  const { pendingWrites, databaseBytes, walBytes, freeBytes, lastBackupS } =
    await store.statistics();
  const archive = store.archive();
  return [
    gauge(
      "user_api_primary",
      "1 if writes are acknowledged here, as far as the server knows, otherwise 0.",
      +store.isPrimary(),
    ),
    gauge(
      "user_api_standby_seconds_behind",
      "Age of the data of a standby, in seconds.",
      store.secondsBehind(),
    ),
    gauge("user_api_pending_writes", "Queued writes.", pendingWrites),
    gauge("user_api_database_bytes", "Size of the database file, in bytes.", databaseBytes),
    gauge("user_api_wal_bytes", "Size of the write-ahead log, in bytes.", walBytes),
    gauge(
      "user_api_disk_free_bytes",
      "Free space of the file system of the database, in bytes.",
      freeBytes,
    ),
    gauge(
      "user_api_last_backup_timestamp_seconds",
      "When the last backup was completed, in seconds since the Unix epoch.",
      lastBackupS,
    ),
    gauge(
      "user_api_archive_seconds_behind",
      "Age of the oldest write that the archive does not have, in seconds; 0 if it has all of them.",
      archive?.secondsBehind,
    ),
    gauge(
      "user_api_archive_bytes_behind",
      "Bytes of the write-ahead log that the archive does not have.",
      archive?.bytesBehind,
    ),
    gauge(
      "user_api_archive_last_base_timestamp_seconds",
      "When the last base of the archive was completed, in seconds since the Unix epoch.",
      archive?.lastBaseS,
    ),
  ];
}

/**
 * @param build labels that tell builds of the program apart
 * @param readOnly whether the server rejects all writes
 * @param droppedLogLines returns the number of lines since the start
 */
export function createMetrics(
  build: Readonly<Record<"version" | "commit", string> & Record<"schema", number>>,
  readOnly = false,
  droppedLogLines = () => 0,
) {
  // Computed once: the two clocks drift apart, and a new start time would look like a restart.
  const startedS = Math.round(Date.now() / 1000 - process.uptime());
  const requests = createRequestMetrics();
  const batchSizes = createHistogram(BATCH_SIZES);
  const commitDurationsS = createHistogram(DURATIONS_S);

  async function renderNow(
    store: Store,
    waitingClients: number,
    unsentBytes: number,
  ): Promise<string> {
    // First, because it counts as a pending write.
    const writable = readOnly ? 0 : await measureWritable(store);
    const families: (MetricFamily | null)[] = [
      ...processMetrics(startedS),
      {
        name: "user_api_build_info",
        help: "Always 1. The labels have the version and the commit of the program, and that of its schema.",
        type: "gauge",
        samples: [{ labels: build, value: 1 }],
      },
      ...requests.families(),
      histogram("user_api_commit_batch_size", "Writes per transaction.", batchSizes),
      histogram(
        "user_api_commit_duration_seconds",
        "Time from BEGIN until the transaction is on disk, in seconds.",
        commitDurationsS,
      ),
      counter(
        "user_api_dropped_log_lines_total",
        "Log lines that were dropped because the reader was too slow or a write failed.",
        droppedLogLines(),
      ),
      gauge("user_api_writable", "1 if a test write has succeeded, otherwise 0.", writable),
      gauge("user_api_read_only", "1 if the server rejects all writes, otherwise 0.", +readOnly),
      gauge("user_api_waiting_clients", "Clients that wait for changes.", waitingClients),
      gauge(
        "user_api_unsent_bytes",
        "Size of all pages of more than 256 KiB that clients have not read yet, in bytes.",
        unsentBytes,
      ),
      ...(await storeMetrics(store)),
    ];
    return renderMetrics(families.filter((family) => family !== null));
  }

  /** Requests that arrive while it is made share it. */
  let rendering: Promise<string> | null = null;

  return {
    addRoute: requests.addRoute,
    observeRequest: requests.observe,
    /** @see OnCommit */
    observeCommit(writes: number, durationMs: number): void {
      batchSizes.observe(writes);
      commitDurationsS.observe(durationMs / 1000);
    },
    /** @returns the text, including the current statistics of the store */
    render(store: Store, waitingClients = 0, unsentBytes = 0): Promise<string> {
      rendering ??= renderNow(store, waitingClients, unsentBytes).finally(() => {
        rendering = null;
      });
      return rendering;
    },
  };
}
