// Real servers, proxies and Prometheus with the rules of deploy/: all is well without an alert, and a fault raises its own.
import { expect, test } from "bun:test";
import { configureHaproxy, configureNginx, findProgram } from "../deploy/proxies.ts";
import { deploy } from "../deploy/yaml.ts";
import { startReplica, type TestServer } from "../http/server.ts";
import { findPrograms, freePort, makeInstance } from "../postgres/instance.ts";
import { isLong } from "../support/long.ts";
import { binary, runBinary, startProgram } from "../support/program.ts";
import { makePlace, token, until } from "./archived-place.ts";

/** Durations of the rules are so many times shorter. alerts.test.ts of test/deploy/ tests them as they are. */
const FACTOR = 6;
const unitsS: Readonly<Record<string, number>> = { m: 60, h: 3600, d: 86_400 };

const found = ["prometheus", "haproxy", "nginx"].map(findProgram);
const [prometheus = "", haproxy = "", nginx = ""] = found.map((path) => path ?? "");
const postgres = findPrograms() ?? "";
const isPossible = binary !== "" && isLong && postgres !== "" && !found.includes(null);

function ask(url: string, init: RequestInit = {}): Promise<string> {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const signal = AbortSignal.timeout(10_000);
  const options = { ...init, headers, signal, tls: { rejectUnauthorized: false } };
  return fetch(url, options).then(
    (response) => response.text(),
    () => "",
  );
}

const addressOf = ({ url }: TestServer) => url.slice("http://".length);

function run(stack: AsyncDisposableStack, ...command: readonly string[]): void {
  const program = startProgram(command);
  stack.defer(async () => {
    program.kill("SIGTERM");
    await program.ended;
  });
}

const rules = (await Bun.file(`${deploy}/prometheus/alerts.yml`).text()).replace(
  /(?<=for: |\[)(\d+)([mhd])\b/g,
  (_, count, unit) => `${Math.ceil((count * (unitsS[unit] ?? 1)) / FACTOR)}s`,
);

/** @param jobs servers by job. @returns the configuration of Prometheus */
function configurePrometheus(jobs: Readonly<Record<string, readonly TestServer[]>>): string {
  const lines = Object.entries(jobs).map(([job, servers]) => {
    const access = `metrics_path: /api/v1/metrics, authorization: { credentials: ${token} }`;
    const targets = `static_configs: [targets: [${servers.map(addressOf)}]]`;
    return `  - { job_name: ${job}, ${access}, ${targets} }`;
  });
  const intervals = "global: { scrape_interval: 1s, evaluation_interval: 1s }";
  return [intervals, "rule_files: [alerts.yml]", "scrape_configs:", ...lines].join("\n");
}

test.skipIf(!isPossible)(
  "no alert is raised while all is well, and a fault raises its own",
  async () => {
    await using stack = new AsyncDisposableStack();
    const standby = { STANDBY: "true", TAKEOVER_SECONDS: "3", ARCHIVE_COMMIT: "sync" };
    const { at, environment, storage } = stack.use(await makePlace(standby));
    const database = stack.use(await makeInstance(postgres, { fsync: "off" }));
    await database.start();
    async function start(path: string, settings: Readonly<Record<string, string>>) {
      const fixed = { DATABASE_URL: path, PORT: `${await freePort()}`, API_TOKEN: token };
      const server = await startReplica(path, { ...settings, ...fixed });
      stack.defer(async () => void (await server.stop("SIGKILL")));
      await until(async () => (await server.call("GET", "/health")).status === 200);
      return server;
    }
    const one = await start(at("one.db"), environment);
    const two = await start(at("two.db"), environment);
    const [a, b] = [await start(database.url, {}), await start(database.url, {})];
    const reader = await start(database.url, { READ_ONLY: "true" });
    const command = (...args: string[]) =>
      runBinary(args, { ...environment, DATABASE_URL: at("one.db") });
    expect(await command("backup", at("backup.db"))).toMatchObject({ code: 0 });

    const ports = [await freePort(), await freePort(), await freePort()] as const;
    const pair = [addressOf(one), addressOf(two)] as const;
    const replicas = configureHaproxy(ports[1], addressOf(a), addressOf(b));
    await Bun.write(at("pair.cfg"), configureHaproxy(ports[0], ...pair));
    await Bun.write(at("replicas.cfg"), replicas.replaceAll("?primary", ""));
    const site = configureNginx(ports[2], at("."), pair);
    await Bun.write(at("nginx.conf"), site.replace("# proxy_next_upstream", "proxy_next_upstream"));
    for (const file of ["pair.cfg", "replicas.cfg"]) run(stack, haproxy, "-f", at(file));
    run(stack, nginx, "-e", "stderr", "-c", at("nginx.conf"));
    const jobs = { "user-api": [one, two], "user-api-postgres": [a, b, reader] };
    await Bun.write(at("alerts.yml"), rules);
    await Bun.write(at("prometheus.yml"), configurePrometheus(jobs));
    const address = `127.0.0.1:${await freePort()}`;
    const files = [`--config.file=${at("prometheus.yml")}`, `--storage.tsdb.path=${at("tsdb")}`];
    run(stack, prometheus, ...files, `--web.listen-address=${address}`);
    const url = `http://${address}`;

    /** Creates and reads a user through a proxy. @returns the responses */
    async function use(port: number): Promise<string> {
      const users = `http${port === ports[2] ? "s" : ""}://localhost:${port}/api/v1/users`;
      const body = JSON.stringify({ email: `${crypto.randomUUID()}@example.com` });
      return (await ask(users, { method: "POST", body })) + (await ask(`${users}/1`));
    }
    let isOver = false;
    const clients = ports.map(async (port) => {
      while (!isOver) await Promise.all([use(port), Bun.sleep(100)]);
    });
    for (const port of ports)
      await until(async () => /"version":1.*"version":1/.test(await use(port)));
    stack.defer(async () => {
      isOver = true;
      await Promise.all(clients);
    });

    /** @returns the names of the alerts that an expression finds, each with its instance or job */
    async function alerts(expression: string): Promise<string[]> {
      const text = await ask(`${url}/api/v1/query?query=${encodeURIComponent(expression)}`);
      return JSON.parse(text).data.result.map(({ metric: { alertname, instance, job } }: any) => {
        return `${alertname} ${instance ?? job}`;
      });
    }
    /** How often the rules were evaluated. */
    async function evaluations(): Promise<number> {
      const pattern = /^prometheus_rule_group_iterations_total\{.*\} (\d+)$/m;
      return Number(pattern.exec(await ask(`${url}/metrics`))?.[1] ?? 0);
    }
    /** Expects that nothing is pending 30 s after a phase, and that nothing has been raised. */
    async function expectQuiet(phase: string): Promise<void> {
      const endMs = performance.now() + 30_000;
      const last = (await evaluations()) + 8;
      await until(async () => (await evaluations()) >= last);
      let pending: string[] = [];
      await until(async () => {
        pending = await alerts("ALERTS");
        return pending.length === 0 || performance.now() > endMs;
      });
      const raised = await alerts('count_over_time(ALERTS{alertstate="firing"}[1h])');
      expect({ phase, pending, raised }).toEqual({ phase, pending: [], raised: [] });
    }
    async function promote(next: TestServer, last: TestServer): Promise<void> {
      expect(await command("archive", "promote")).toMatchObject({ code: 0 });
      await until(async () => (await next.call("GET", "/health?primary")).status === 200);
      await until(async () => (await last.call("GET", "/health")).json?.data?.status === "standby");
    }

    await expectQuiet("steady");
    await promote(two, one);
    await expectQuiet("switch");
    await one.restart();
    await until(async () => (await one.call("GET", "/health")).status === 200);
    await promote(one, two);
    for (const server of [two, a, b, reader]) await server.restart();
    await expectQuiet("restarts");

    storage.misbehave = () => ({ do: "stall" });
    database.stop("immediate");
    const expected = [a, b].map((server) => `UserApiNotWritable ${addressOf(server)}`);
    expected.push(`UserApiStorageUnreachable ${addressOf(one)}`);
    let raised: string[] = [];
    await until(async () => {
      raised = await alerts('ALERTS{alertstate="firing"}');
      return expected.every((alert) => raised.includes(alert));
    });
    expect(raised.toSorted()).toEqual(expected.toSorted());
  },
  300_000,
);
