// The alerts and the dashboard use metrics, labels and routes that exist.
import { expect, test } from "bun:test";
import { createMetrics } from "../../src/http/metrics/metrics.ts";
import { WAL_LIMIT_BYTES } from "../../src/sqlite/file/connection.ts";
import { makeDirectory } from "../support/directory.ts";
import { deploy, readYaml } from "./yaml.ts";

async function metricsText(isStandby = false): Promise<string> {
  const metrics = createMetrics({ version: "0.1.0", commit: "1cc9c668", schema: 3 });
  metrics.observeRequest("GET", "/api/v1/users/:id", 200, 1);
  metrics.observeRequest("GET", "/api/v1/health", "not_primary", 1);
  metrics.observeCommit(1, 1);
  const bytes = { databaseBytes: 0, walBytes: 0, freeBytes: 0 };
  const statistics = async () => ({ pendingWrites: 0, ...bytes, lastBackupS: 0 });
  for (const kind of ["certificate", "token"] as const)
    metrics.addValidity(kind, () => ({ startMs: 0, endMs: 0 }));
  const state = { secondsBehind: 0, bytesBehind: 0, lastBaseS: 0, isReachable: true };
  const store: any = {
    statistics,
    archive: () => (isStandby ? null : state),
    checkUsable: async () => {},
    isPrimary: () => true,
    secondsBehind: () => 0,
  };
  return metrics.render({ current: () => store, waitsFor: () => null });
}

/** @returns the series, by name, each with the names of its labels */
function seriesOf(text: string): Map<string, Set<string>> {
  const series = new Map<string, Set<string>>();
  for (const [, name = "", labels = ""] of text.matchAll(/^([a-z_]+)(?:\{(.*)\})? /gm)) {
    series.set(name, new Set([...labels.matchAll(/([a-z_]+)="/g)].map(([, label]) => label ?? "")));
  }
  return series;
}

const text = await metricsText();
const series = seriesOf(text + (await metricsText(true)));

const labelsOfTarget = ["job", "instance"];

/** Expects that each selector of PromQL expressions names an existing metric and existing labels. */
function expectKnownMetrics(expressions: readonly string[]): void {
  for (const expression of expressions) {
    const selectors = [...expression.matchAll(/([a-z][a-z_]*)\{([^}]*)\}/g)];
    expect(selectors, expression).not.toBeEmpty();
    for (const [, name = "", matchers = ""] of selectors) {
      if (name === "up") continue;
      expect([...series.keys()]).toContain(name);
      for (const [, label = ""] of matchers.matchAll(/([a-z_]+)(?:=~|!~|!=|=)"/g))
        expect([...labelsOfTarget, ...(series.get(name) ?? [])], expression).toContain(label);
    }
  }
}

const { groups } = await readYaml("prometheus/alerts.yml");
const rules: { alert: string; expr: string; annotations: Record<string, string> }[] =
  groups.flatMap(({ rules }: any) => rules);

test("alerts.yml uses metrics that exist, and UserApiLargeWal allows the size at which the log is kept", () => {
  expectKnownMetrics(rules.map(({ expr }) => expr));
  const rule = rules.find(({ alert }) => alert === "UserApiLargeWal");
  expect(Number(rule?.expr.split(">")[1])).toBeGreaterThan(WAL_LIMIT_BYTES);
});

test("each alert says what the likely cause is, and leads to the section that names it", async () => {
  const page = await Bun.file(`${deploy}/../docs/alerts.md`).text();
  const url = "https://github.com/OWNER/user-api/blob/main/docs/alerts.md#";
  const sections = page.split(/^## /m).slice(1);
  const anchorOf = (section: string) =>
    url + section.slice(0, section.indexOf("\n")).toLowerCase().replaceAll(" ", "-");
  for (const { alert, annotations } of rules) {
    expect(annotations["description"], alert).toBeString();
    const section = sections.find((each) => anchorOf(each) === annotations["runbook_url"]);
    expect(section, alert).toContain(`\`${alert}\``);
  }
});

const { panels, templating } = await Bun.file(`${deploy}/grafana/dashboard.json`).json();

test("dashboard.json has the metrics of the page and of the alerts, and no others than exist", async () => {
  const page = await Bun.file(`${deploy}/../docs/operations.md`).text();
  const table = page.split("Look at these first:")[1]?.split("\n\n")[1] ?? "";
  const rules = await Bun.file(`${deploy}/prometheus/alerts.yml`).text();
  const expressions = JSON.stringify(panels);
  for (const text of [table, rules]) {
    const names = text.match(/\b(?:http|user_api)_\w+(?=[{`])/g) ?? [];
    expect(names.length).toBeGreaterThan(5);
    expect(names.filter((name) => !expressions.includes(name))).toEqual([]);
  }
  expectKnownMetrics(panels.flatMap(({ targets }: any) => targets.map(({ expr }: any) => expr)));
  for (const { type, query } of templating.list)
    if (type === "query") expect(query).toStartWith("label_values(user_api_build_info");
});

const promtool = Bun.which("promtool");

test.skipIf(promtool === null)("promtool accepts metrics and configuration", async () => {
  function run(...args: string[]) {
    const stdin = Buffer.from(text);
    const { exitCode, stdout, stderr } = Bun.spawnSync([promtool ?? "", ...args], { stdin });
    return { code: exitCode, output: `${stdout}${stderr}` };
  }
  expect(run("check", "metrics")).toEqual({ code: 0, output: "" });
  // It fails if a file with credentials is missing.
  using copy = makeDirectory();
  const config = await Bun.file(`${deploy}/prometheus/prometheus.yml`).text();
  await Bun.write(copy.at("token"), "uat_");
  await Bun.write(copy.at("alerts.yml"), Bun.file(`${deploy}/prometheus/alerts.yml`));
  const here = config.replace("/run/secrets/metrics_token", copy.at("token"));
  await Bun.write(copy.at("prometheus.yml"), here);
  expect(run("check", "config", copy.at("prometheus.yml"))).toMatchObject({ code: 0 });
});
