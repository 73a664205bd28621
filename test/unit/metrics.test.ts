import { expect, test } from "bun:test";
import type { Store } from "../../src/domain/store.ts";
import { createMetrics, type Metrics } from "../../src/http/metrics/metrics.ts";
import { metricsIn } from "../http/make.ts";

const build = { version: "1.2.3", commit: "1cc9c668", schema: 3 };
const statistics = {
  pendingWrites: 0,
  databaseBytes: 0,
  walBytes: 0,
  freeBytes: 1e9,
  lastBackupS: 1.5e9,
};
const archive = {
  secondsBehind: 1.5,
  bytesBehind: 4120,
  walBytes: 8240,
  lastBaseS: 1.6e9,
  isHeld: true,
  isReachable: true,
  problem: null,
};
const store = {
  statistics: async () => statistics,
  archive: () => archive,
  isPrimary: () => true,
  secondsBehind: () => null,
  checkUsable: async () => {},
} as unknown as Store;

/** @returns the values by series, e.g. `up{a="b"}` */
async function read(metrics: Metrics): Promise<Map<string, number>> {
  return metricsIn(await metrics.render(store));
}

test("observeRequest counts a response in every bucket from its duration upwards, in seconds", async () => {
  const metrics = createMetrics(build);
  for (const durationMs of [0.1, 0.5, 0.501, 1, 40, 5_000, 5_001]) {
    metrics.observeRequest("GET", "/a", 200, durationMs);
  }
  metrics.observeRequest("GET", "/b", 200, 1);
  const values = await read(metrics);
  const name = "http_request_duration_seconds";
  const labels = 'method="GET",route="/a"';
  const buckets = [...values].filter(([series]) => /_seconds_bucket.*"\/a"/.test(series));
  const bounds = "0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 +Inf".split(" ");
  const counts = [2, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 6, 7];
  expect(buckets).toEqual(
    counts.map((count, at) => [`${name}_bucket{le="${bounds[at]}",${labels}}`, count]),
  );
  expect(values.get(`${name}_count{${labels}}`)).toBe(7);
  expect(values.get(`${name}_sum{${labels}}`)).toBeCloseTo(10.043_101, 9);
});

test("observeCommit records the writes per commit and its duration in seconds", async () => {
  const metrics = createMetrics(build);
  metrics.observeCommit(3, 20);
  metrics.observeCommit(5, 400);
  const values = await read(metrics);
  const writes = "user_api_commit_batch_size";
  const duration = "user_api_commit_duration_seconds";
  expect(values.get(`${writes}_sum`)).toBe(8);
  expect(values.get(`${writes}_bucket{le="4"}`)).toBe(1);
  expect(values.get(`${writes}_bucket{le="8"}`)).toBe(2);
  expect(values.get(`${duration}_sum`)).toBeCloseTo(0.42, 9);
  expect(values.get(`${duration}_bucket{le="0.025"}`)).toBe(1);
  expect(values.get(`${duration}_bucket{le="0.5"}`)).toBe(2);
});

// Dashboards and alerts of operators depend on these names.
test("render has these metrics, of these types, before the first request", async () => {
  const text = await createMetrics(build).render(store);
  expect([...text.matchAll(/^# TYPE (.+)$/gm)].map(([, type]) => type)).toEqual([
    "process_cpu_seconds_total counter",
    "process_resident_memory_bytes gauge",
    "process_start_time_seconds gauge",
    "user_api_build_info gauge",
    "http_requests_total counter",
    "http_request_duration_seconds histogram",
    "user_api_commit_batch_size histogram",
    "user_api_commit_duration_seconds histogram",
    "user_api_dropped_log_lines_total counter",
    "user_api_writable gauge",
    "user_api_read_only gauge",
    "user_api_waiting_clients gauge",
    "user_api_unsent_bytes gauge",
    "user_api_primary gauge",
    "user_api_standby gauge",
    "user_api_pending_writes gauge",
    "user_api_database_bytes gauge",
    "user_api_wal_bytes gauge",
    "user_api_disk_free_bytes gauge",
    "user_api_last_backup_timestamp_seconds gauge",
    "user_api_archive_reachable gauge",
    "user_api_archive_seconds_behind gauge",
    "user_api_archive_bytes_behind gauge",
    "user_api_archive_last_base_timestamp_seconds gauge",
  ]);
  expect(text).toContain(
    '\nuser_api_commit_batch_size_bucket{le="+Inf"} 0\nuser_api_commit_batch_size_sum 0\n',
  );
  expect(text).toMatch(
    /\n# HELP user_api_writable .+\n# TYPE user_api_writable gauge\nuser_api_writable 1\n/,
  );
  expect(text).toContain("\nuser_api_archive_seconds_behind 1.5\n");
  expect(text).toContain("\nuser_api_archive_bytes_behind 4120\n");
  expect(text).toContain('\nuser_api_build_info{version="1.2.3",commit="1cc9c668",schema="3"} 1\n');
});

test("render reports that the database cannot be written, and omits what is unknown", async () => {
  const failing = {
    ...store,
    statistics: async () => ({ ...statistics, freeBytes: null, lastBackupS: null }),
    archive: () => null,
    checkUsable: () => Promise.reject(new Error("the disk is full")),
  };
  const text = await createMetrics(build).render(failing);
  expect(text).toContain("\nuser_api_writable 0\n");
  expect(text).not.toContain("user_api_disk_free_bytes");
  expect(text).not.toContain("user_api_last_backup");
  expect(text).not.toContain("user_api_archive");
});

test("render makes one text for all requests that arrive meanwhile", async () => {
  let reads = 0;
  const countReads = async () => {
    reads += 1;
    return statistics;
  };
  const counted = { ...store, statistics: countReads } as Store;
  const metrics = createMetrics(build);
  await Promise.all([metrics.render(counted), metrics.render(counted)]);
  expect(reads).toBe(1);
  metrics.observeRequest("GET", "/a", 200, 1);
  expect(await metrics.render(counted)).toContain('route="/a"');
});

test("render does not take a primary for a standby when it has lost the storage of its archive", async () => {
  const lost = { secondsBehind: () => 40, archive: () => ({ ...archive, isReachable: false }) };
  const text = await createMetrics(build).render({ ...store, ...lost });
  for (const name of ["standby", "archive_reachable"])
    expect(text).toContain(`user_api_${name} 0\n`);
  expect(text).not.toContain("user_api_standby_seconds_behind");
});

test("addRoute exports the counters of failures at 0", async () => {
  const metrics = createMetrics(build);
  metrics.addRoute("GET", "/a");
  const labels = 'method="GET",route="/a"';
  const before = await read(metrics);
  expect(before.get(`http_requests_total{${labels},status="500"}`)).toBe(0);
  expect(before.get(`http_requests_total{${labels},status="503"}`)).toBe(0);
  metrics.observeRequest("GET", "/a", 500, 1);
  expect((await read(metrics)).get(`http_requests_total{${labels},status="500"}`)).toBe(1);
});
