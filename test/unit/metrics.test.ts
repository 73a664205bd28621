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

function render(metrics: Metrics, current = store): Promise<string> {
  return metrics.render({ current: () => current, waitsFor: () => null });
}

async function read(metrics: Metrics): Promise<Map<string, number>> {
  return metricsIn(await render(metrics));
}

test("responses and commits are counted in every bucket from their duration upwards, in seconds, and failures from 0", async () => {
  const metrics = createMetrics(build);
  metrics.addRoute("GET", "/a");
  const labels = 'method="GET",route="/a"';
  const failures = [500, 503].map((status) => `http_requests_total{${labels},status="${status}"}`);
  const countsOf = (values: Map<string, number>) => failures.map((series) => values.get(series));
  expect(countsOf(await read(metrics))).toEqual([0, 0]);
  for (const durationMs of [0.1, 0.5, 0.501, 1, 40, 5_000, 5_001]) {
    metrics.observeRequest("GET", "/a", 503, durationMs);
  }
  metrics.observeRequest("GET", "/b", 200, 1);
  metrics.observeCommit(3, 20);
  metrics.observeCommit(5, 400);
  const values = await read(metrics);
  expect(countsOf(values)).toEqual([0, 7]);
  const name = "http_request_duration_seconds";
  const buckets = [...values].filter(([series]) => /_seconds_bucket.*"\/a"/.test(series));
  const bounds = "0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 +Inf".split(" ");
  const counts = [2, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 6, 7];
  expect(buckets).toEqual(
    counts.map((count, at) => [`${name}_bucket{le="${bounds[at]}",${labels}}`, count]),
  );
  expect(values.get(`${name}_count{${labels}}`)).toBe(7);
  expect(values.get(`${name}_sum{${labels}}`)).toBeCloseTo(10.043_101, 9);
  const [writes, duration] = ["user_api_commit_batch_size", "user_api_commit_duration_seconds"];
  expect(Object.fromEntries(values)).toMatchObject({
    [`${writes}_sum`]: 8,
    [`${writes}_bucket{le="4"}`]: 1,
    [`${writes}_bucket{le="8"}`]: 2,
    [`${duration}_bucket{le="0.025"}`]: 1,
    [`${duration}_bucket{le="0.5"}`]: 2,
  });
  expect(values.get(`${duration}_sum`)).toBeCloseTo(0.42, 9);
});

// That dashboards and alerts have what they use is in test/deploy/monitoring.test.ts.
test("render has every metric with its type before the first request, and a counter only if its name says so", async () => {
  const text = await render(createMetrics(build));
  const types = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)];
  expect(types).toHaveLength(24);
  for (const [, name = "", type] of types) {
    const isHistogram = /(?:_duration_seconds|_batch_size)$/.test(name);
    const expected = name.endsWith("_total") ? "counter" : "gauge";
    expect([name, type]).toEqual([name, isHistogram ? "histogram" : expected]);
    expect(text).toContain(`# HELP ${name} `);
  }
  for (const line of [
    ...['commit_batch_size_bucket{le="+Inf"} 0', "commit_batch_size_sum 0", "writable 1"],
    ...["archive_seconds_behind 1.5", "archive_bytes_behind 4120", "primary 1", "standby 0"],
    ...["archive_last_base_timestamp_seconds 1600000000", "waiting_clients 0"],
    'build_info{version="1.2.3",commit="1cc9c668",schema="3"} 1',
  ])
    expect(text).toContain(`\nuser_api_${line}\n`);
});

test("render reports that the database cannot be written, or the archive not be reached, and omits what is unknown", async () => {
  const unknown = async () => ({ ...statistics, freeBytes: null, lastBackupS: null });
  const checkUsable = () => Promise.reject(new Error("the disk is full"));
  const failing = { ...store, statistics: unknown, archive: () => null, checkUsable };
  const text = await render(createMetrics(build), failing);
  expect(text).toContain("\nuser_api_writable 0\n");
  expect(text).not.toMatch(/user_api_(?:disk_free_bytes|last_backup|archive)/);
  // A primary.
  const lost = { secondsBehind: () => 40, archive: () => ({ ...archive, isReachable: false }) };
  const other = await render(createMetrics(build), { ...store, ...lost });
  for (const name of ["standby", "archive_reachable"])
    expect(other).toContain(`user_api_${name} 0\n`);
  expect(other).not.toContain("user_api_standby_seconds_behind");
});
