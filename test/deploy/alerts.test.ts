// Each alert of deploy/prometheus/alerts.yml is raised by its condition, and none is raised while all is well.
import { expect, test } from "bun:test";
import { makeDirectory } from "../support/directory.ts";
import { deploy, readYaml } from "./yaml.ts";

const MINUTES = 3 * 24 * 60;
const DAY_S = 86_400;
/** When the primary and its standby switch. */
const SWITCH = 30;
const REST = MINUTES - SWITCH;

const get = 'method="GET", route="/api/v1/users/:id"';
const post = 'method="POST", route="/api/v1/users"';
const health = 'method="GET", route="/api/v1/health"';

/**
 * Series without job and instance, separated by line feeds or semicolons, of which the last one counts. A value is
 * constant, `+` and the increase per minute, or as promtool has it.
 */
const server = `
  up = 1; user_api_writable = 1; user_api_read_only = 0; user_api_primary = 1; user_api_standby = 0
  user_api_pending_writes = 3; user_api_wal_bytes = 4000000; user_api_database_bytes = 1000000000
  user_api_dropped_log_lines_total = 0
  http_requests_total{${get}, status="200"} = +600
  http_requests_total{${get}, status="500"} = 0
  http_requests_total{${get}, status="503"} = 0
  http_requests_total{${post}, status="409"} = +60
  http_requests_total{${post}, status="503"} = 0
  http_request_duration_seconds_bucket{${get}, le="0.5"} = +600
  http_request_duration_seconds_bucket{${get}, le="1"} = +600
  http_request_duration_seconds_bucket{${get}, le="+Inf"} = +600
  user_api_commit_duration_seconds_bucket{le="0.5"} = +60
  user_api_commit_duration_seconds_bucket{le="1"} = +60
  user_api_commit_duration_seconds_bucket{le="+Inf"} = +60`;

const reader = `${server}
  user_api_writable = 0; user_api_read_only = 1; user_api_primary = 0
  http_requests_total{${post}, status="503"} = +60`;

const standby = `
  up = 1; user_api_writable = 0; user_api_primary = 0; user_api_standby = 1; user_api_standby_seconds_behind = 2
  user_api_disk_free_bytes = 2000000000; user_api_database_bytes = 1000000000`;

const primary = `${server}
  user_api_disk_free_bytes = 2000000000; user_api_last_backup_timestamp_seconds = 0
  user_api_archive_seconds_behind = 0; user_api_archive_reachable = 1`;

/**
 * One of two machines that switch, with a restart that lasts for a scrape and some failed writes. Proxies ask for the
 * primary, and send writes to both. The certificate of 90 days has 21 left at the end.
 */
const machine = `${server}
  up = 1x${SWITCH} 0 1x${REST}
  http_requests_total{${health}, status="503", reason="not_primary"} = +60
  http_requests_total{${post}, status="503", reason="not_primary"} = +600
  http_requests_total{${post}, status="503"} = 0x${SWITCH} 9x2 19x${REST}
  user_api_disk_free_bytes = 2000000000
  user_api_certificate_start_timestamp_seconds = ${-65.8 * DAY_S}
  user_api_certificate_expiry_timestamp_seconds = ${24.2 * DAY_S}`;

const healthy = {
  "user-api/one": `${machine}
    user_api_primary = 1x${SWITCH} 0x${REST}; user_api_writable = 1x${SWITCH} 0x${REST}
    user_api_standby = 0x${SWITCH} 1x${REST}; user_api_standby_seconds_behind = _x${SWITCH} 2x${REST}
    user_api_archive_seconds_behind = 0.8x${SWITCH}; user_api_archive_reachable = 1x${SWITCH}
    user_api_last_backup_timestamp_seconds = 0x1440 ${DAY_S}x1440 ${2 * DAY_S}x1440`,
  "user-api/two": `${machine}
    user_api_primary = 0x${SWITCH} 1x${REST}; user_api_writable = 0x${SWITCH} 1x${REST}
    user_api_standby = 1x${SWITCH} 0x${REST}; user_api_standby_seconds_behind = 2x${SWITCH}
    user_api_archive_seconds_behind = _x${SWITCH} 0.8x${REST}; user_api_archive_reachable = _x${SWITCH} 1x${REST}`,
  "user-api-postgres/a": server,
  "user-api-postgres/b": `${server}
    up = 1x10 0 1x${MINUTES}`,
  "user-api-postgres/reader": reader,
};

/** The alerts that are raised, after how many minutes, what is different of `primary`, and another server of its job. */
const faults = `
  Down | 2 | up = 0; user_api_primary = _ |
  ReplicaDown | 11 | | up = 0
  StorageUnreachable StandbyBehind | 4 | user_api_archive_reachable = 0; user_api_archive_seconds_behind = 200; user_api_writable = 0; user_api_primary = 0 | standby; user_api_standby_seconds_behind = 50
  NotWritable | 2 | user_api_writable = 0 | reader
  NoPrimary | 3 | user_api_primary = 0 | reader
  ReadOnly | 61 | user_api_read_only = 1; user_api_writable = 0; user_api_primary = 0 |
  ServerErrors | 12 | http_requests_total{${get}, status="500"} = 0x10 1x30 |
  FailedWrites | 8 | http_requests_total{${post}, status="503"} = +4 |
  Unavailable | 8 | http_requests_total{${get}, status="503"} = +10 |
  SlowReads | 14 | http_request_duration_seconds_bucket{${get}, le="0.5"} = +590 |
  SlowCommits | 14 | user_api_commit_duration_seconds_bucket{le="0.5"} = +50 |
  WritesQueue | 2 | user_api_pending_writes = 2049 |
  LargeWal | 61 | user_api_wal_bytes = 300000000 |
  DiskSpace | 11 | user_api_disk_free_bytes = 1900000000 |
  BackupLate | ${2 * 1440 + 120} | |
  NoBackup | ${2 * 1440 + 60} | user_api_last_backup_timestamp_seconds = _ |
  ArchiveBehind | 3 | user_api_archive_seconds_behind = 121 |
  StandbyBehind | 3 | | standby; user_api_standby_seconds_behind = 31
  CertificateExpires | 61 | user_api_certificate_start_timestamp_seconds = ${-36 * DAY_S}; user_api_certificate_expiry_timestamp_seconds = ${11 * DAY_S} |
  TokenExpires | 61 | user_api_token_expiry_timestamp_seconds = ${20 * DAY_S} |
  LogLinesDropped | 2 | user_api_dropped_log_lines_total = +5 |`
  .slice(1)
  .split("\n")
  .map((line) => line.split("|").map((part) => part.trim()));

test("each alert has a condition that raises it", async () => {
  const { groups } = await readYaml("prometheus/alerts.yml");
  const names = groups.flatMap(({ rules }: any) => rules.map(({ alert }: any) => alert));
  const raised = faults.flatMap(([found = ""]) => found.split(" "));
  expect(new Set(raised.map((name) => `UserApi${name}`))).toEqual(new Set(names));
});

type World = Readonly<Record<string, string>>;
/** Names of the alerts that an expression finds at the end, by expression. */
type Raised = Readonly<Record<string, readonly string[]>>;

function makeTest(name: string, world: World, minutes: number, raised: Raised) {
  const series = new Map<string, string>();
  for (const [target, text] of Object.entries(world)) {
    const [job, instance] = target.split("/");
    for (const [, metric, labels = "", value = ""] of text.matchAll(
      /(\w+)(?:\{(.*?)\})? = ([^;\n]+)/g,
    )) {
      const isShort = !/[ x]/.test(value);
      const values = value.startsWith("+") ? `0${value}` : value;
      const key = `${metric}{job="${job}", instance="${instance}", ${labels}}`;
      series.set(key, isShort ? `${values}x${minutes}` : values);
    }
  }
  const checks = Object.entries(raised).map(([expr, alerts]) => ({
    expr: `count by (alertname) (${expr})`,
    evalTime: `${minutes}m`,
    expSamples: alerts.map((alert) => ({ labels: `{alertname="UserApi${alert}"}`, value: 1 })),
  }));
  const inputSeries = [...series].map(([key, values]) => ({ series: key, values }));
  return { name, interval: "1m", inputSeries, promqlExprTest: checks };
}

const promtool = Bun.which("promtool") ?? "";

// promtool makes some hundred evaluations per second.
for (const [everyMinutes, longest] of [
  [1, 2 * SWITCH],
  [60, MINUTES],
] as const)
  test.skipIf(promtool === "")(
    `nothing is raised in ${longest} minutes while all is well, and each alert by its condition alone`,
    async () => {
      using directory = makeDirectory();
      const firing = 'ALERTS{alertstate="firing"}';
      const never = { [`count_over_time(${firing}[3d])`]: [], ALERTS: [] };
      const tests = [makeTest("all is well", healthy, longest, never)];
      for (const [raised = "", time, series, other = ""] of faults) {
        if (Number(time) > 60 !== everyMinutes > 1) continue;
        const two = other.replace("reader", reader).replace("standby;", `${standby};`);
        const world = { "user-api/one": `${primary}; ${series}`, "user-api/two": two };
        tests.push(makeTest(raised, world, Number(time), { [firing]: raised.split(" ") }));
      }
      const ruleFiles = [`${deploy}/prometheus/alerts.yml`];
      const file = { ruleFiles, evaluationInterval: `${everyMinutes}m`, tests };
      const json = JSON.stringify(file).replace(/"[a-z]+[A-Z]\w*":/g, (key) =>
        key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      );
      await Bun.write(directory.at("alerts.json"), json);
      const command = [promtool, "test", "rules", directory.at("alerts.json")];
      const { exitCode, stdout, stderr } = Bun.spawnSync(command);
      expect([exitCode, `${stdout}${stderr}`]).toEqual([0, expect.stringContaining("SUCCESS")]);
    },
    120_000,
  );
