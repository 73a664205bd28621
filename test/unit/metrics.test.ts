import { expect, test } from "bun:test";
import { createMetrics } from "../../src/http/metrics.ts";
import type { Store } from "../../src/store.ts";

const statistics = {
  pending_writes: 3,
  unsent_bytes: 262_144,
  database_bytes: 4096,
  wal_bytes: 12_345,
};
const store = { statistics: async () => statistics } as Store;

/** The values by series, as in `up{a="b"}`. */
async function read(metrics = createMetrics("1.2.3")): Promise<Map<string, number>> {
  const lines = (await metrics.render(store)).split("\n").filter((line) => /^\w/.test(line));
  return new Map(
    lines.map((line) => [
      line.slice(0, line.lastIndexOf(" ")),
      Number(line.slice(line.lastIndexOf(" "))),
    ]),
  );
}

test("`observeRequest` counts a response in every bucket from its duration upwards, in seconds", async () => {
  const metrics = createMetrics("1.2.3");
  for (const duration_ms of [0.1, 0.5, 0.501, 1, 40, 5_000, 5_001]) {
    metrics.observeRequest("GET", "/a", 200, duration_ms);
  }
  metrics.observeRequest("GET", "/b", 200, 1);
  const values = await read(metrics);
  const name = "http_request_duration_seconds";
  const labels = 'method="GET",route="/a"';
  const buckets = [...values].filter(([series]) => /_seconds_bucket.*"\/a"/.test(series));
  expect(buckets).toEqual(
    [
      ["0.0005", 2],
      ["0.001", 4],
      ["0.0025", 4],
      ["0.005", 4],
      ["0.01", 4],
      ["0.025", 4],
      ["0.05", 5],
      ["0.1", 5],
      ["0.25", 5],
      ["0.5", 5],
      ["1", 5],
      ["2.5", 5],
      ["5", 6],
      ["+Inf", 7],
    ].map(([le, count]) => [`${name}_bucket{le="${le}",${labels}}`, count] as [string, number]),
  );
  expect(values.get(`${name}_count{${labels}}`)).toBe(7);
  expect(values.get(`${name}_sum{${labels}}`)).toBeCloseTo(10.043_101, 9);
});

test("`observeCommit` records the writes per commit and its duration in seconds", async () => {
  const metrics = createMetrics("1.2.3");
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

test("`render` has the current statistics of the store", async () => {
  const values = await read();
  expect(values.get('user_api_build_info{version="1.2.3"}')).toBe(1);
  expect(values.get("user_api_unsent_bytes")).toBe(262_144);
  expect(values.get("user_api_pending_writes")).toBe(3);
  expect(values.get("user_api_database_bytes")).toBe(4096);
  expect(values.get("user_api_wal_bytes")).toBe(12_345);
});

test("`render` has the current process metrics each time", async () => {
  const metrics = createMetrics("1.2.3");
  for (let round = 0; round < 3; round += 1) {
    const used_s = () => Object.values(process.cpuUsage()).reduce((sum, each) => sum + each) / 1e6;
    const before = used_s();
    const values = await read(metrics);
    expect(values.get("process_cpu_seconds_total")).toBeWithin(before, used_s() + 0.001);
    const rss = process.memoryUsage.rss();
    expect(values.get("process_resident_memory_bytes")).toBeWithin(rss * 0.9, rss * 1.1);
    const began_s = Date.now() / 1000 - process.uptime();
    expect(values.get("process_start_time_seconds")).toBeWithin(began_s - 2, began_s + 2);
  }
});

test("`render` has the number of dropped log lines", async () => {
  let dropped = 0;
  const metrics = createMetrics("1.2.3", () => dropped);
  const name = "user_api_dropped_log_lines_total";
  expect((await read(metrics)).get(name)).toBe(0);
  dropped = 7;
  await read(metrics);
  // Not added again.
  expect((await read(metrics)).get(name)).toBe(7);
});
