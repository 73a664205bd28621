// The alerts and the dashboard use metrics, labels and routes that exist.
import { describe, expect, test } from "bun:test";
import { createMetrics } from "../../src/http/metrics/metrics.ts";
import { WAL_LIMIT_BYTES } from "../../src/sqlite/file/connection.ts";
import { makeDirectory } from "../support/directory.ts";
import { deploy, readYaml } from "./yaml.ts";

/** @returns the metrics of a server that has handled a request */
async function metricsText(): Promise<string> {
  const metrics = createMetrics({ version: "0.1.0", commit: "1cc9c668", schema: 3 });
  metrics.observeRequest("GET", "/api/v1/users/:id", 200, 1);
  metrics.observeCommit(1, 1);
  const statistics = async () => ({
    pendingWrites: 0,
    databaseBytes: 0,
    walBytes: 0,
    freeBytes: 0,
    lastBackupS: 0,
  });
  const archive = () => ({ secondsBehind: 0, bytesBehind: 0, lastBaseS: 0, isHeld: true });
  return metrics.render({
    statistics,
    archive,
    checkUsable: async () => {},
    isPrimary: () => true,
    secondsBehind: () => 0,
  } as any);
}

/** @returns the series, by name, each with the names of its labels */
function seriesOf(text: string): Map<string, Set<string>> {
  const series = new Map<string, Set<string>>();
  for (const [, name = "", labels = ""] of text.matchAll(/^([a-z_]+)(?:\{(.*)\})? /gm)) {
    series.set(name, new Set([...labels.matchAll(/([a-z_]+)="/g)].map(([, label]) => label ?? "")));
  }
  return series;
}

/** Labels that Prometheus adds to every series. */
const targetLabels = ["job", "instance"];
/** Prometheus's own metric of a target. */
const ownMetrics = ["up"];

const text = await metricsText();
const series = seriesOf(text);

/** Expects that each selector of a PromQL expression names an existing metric and existing labels. */
function expectKnownMetrics(expression: string): void {
  const selectors = [...expression.matchAll(/([a-z][a-z_]*)\{([^}]*)\}/g)];
  expect(selectors).not.toBeEmpty();
  for (const [, name = "", matchers = ""] of selectors) {
    if (ownMetrics.includes(name)) continue;
    expect([...series.keys()]).toContain(name);
    for (const [, label = ""] of matchers.matchAll(/([a-z_]+)(?:=~|!~|!=|=)"/g)) {
      expect([...targetLabels, ...(series.get(name) ?? [])]).toContain(label);
    }
  }
}

describe("alerts.yml", async () => {
  const { groups } = await readYaml("prometheus/alerts.yml");
  const rules: { alert: string; expr: string; annotations: object }[] = groups.flatMap(
    ({ rules }: any) => rules,
  );

  test("UserApiLargeWal allows the size at which the log is kept", () => {
    const rule = rules.find(({ alert }) => alert === "UserApiLargeWal");
    expect(Number(rule?.expr.split(">")[1])).toBeGreaterThan(WAL_LIMIT_BYTES);
  });

  test.each(rules.map(({ alert, expr }) => [alert, expr]))(
    "%s uses metrics that exist",
    (_, expression) => expectKnownMetrics(expression),
  );

  test.each(rules.map(({ alert, annotations }) => [alert, annotations]))(
    "%s says what the likely cause is",
    (_, annotations) => expect(annotations).toHaveProperty("description"),
  );
});

describe("dashboard.json", async () => {
  const { panels, templating } = await Bun.file(`${deploy}/grafana/dashboard.json`).json();

  test.each(
    panels.flatMap(({ title, targets }: any) => targets.map(({ expr }: any) => [title, expr])),
  )("%s uses metrics that exist", (_, expression) => expectKnownMetrics(expression as string));

  test("its variables use a metric that exists", () => {
    for (const { type, query } of templating.list) {
      if (type === "query") expect(query).toStartWith("label_values(user_api_build_info");
    }
  });
});

const promtool = Bun.which("promtool");

describe.skipIf(promtool === null)(
  `promtool${promtool === null ? " (skipped: not installed)" : ""}`,
  () => {
    function run(...args: string[]) {
      const stdin = Buffer.from(text);
      const { exitCode, stdout, stderr } = Bun.spawnSync([promtool ?? "", ...args], { stdin });
      return { code: exitCode, output: `${stdout}${stderr}` };
    }

    test("check metrics accepts the metrics", () => {
      expect(run("check", "metrics")).toEqual({ code: 0, output: "" });
    });

    test("check rules accepts the alerts", () => {
      expect(run("check", "rules", `${deploy}/prometheus/alerts.yml`)).toMatchObject({
        code: 0,
      });
    });

    test("check config accepts the configuration", async () => {
      // It fails if a file with credentials is missing.
      using copy = makeDirectory();
      const config = await Bun.file(`${deploy}/prometheus/prometheus.yml`).text();
      await Bun.write(copy.at("token"), "uat_");
      await Bun.write(copy.at("alerts.yml"), Bun.file(`${deploy}/prometheus/alerts.yml`));
      await Bun.write(
        copy.at("prometheus.yml"),
        config.replace("/run/secrets/metrics_token", copy.at("token")),
      );
      expect(run("check", "config", copy.at("prometheus.yml"))).toMatchObject({ code: 0 });
    });

    test("test rules raises each alert for its condition, and none for a healthy server", () => {
      const files = ["alerts", "backup-alert"].map((name) => `${import.meta.dir}/${name}.test.yml`);
      expect(run("test", "rules", ...files)).toMatchObject({ code: 0 });
    });
  },
);
