/** Prometheus itself, with the alerts of deploy/, whose times are shorter. */
import { readYaml } from "../deploy/yaml.ts";
import { makeDirectory } from "../support/directory.ts";
import { startProgram } from "../support/program.ts";

export const prometheus: string | null = Bun.which("prometheus");

/** How often the alerts expect a scrape. */
const SCRAPE_S = 15;
const UNITS_S: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
}

interface Group {
  readonly name: string;
  readonly rules: readonly Rule[];
}

/** @returns a shorter duration, e.g. of `5m` */
function shorten(duration: string, factor: number): string {
  const [, number = "", unit = ""] = /^(\d+)([smhd])$/.exec(duration) ?? [];
  return `${Math.round((Number(number) * (UNITS_S[unit] ?? Number.NaN) * 1000) / factor)}ms`;
}

function shortenRule(rule: Rule, factor: number): Rule {
  const expr = rule.expr.replace(/\[(\w+)\]/g, (_, window) => `[${shorten(window, factor)}]`);
  return rule.for === undefined
    ? { ...rule, expr }
    : { ...rule, expr, for: shorten(rule.for, factor) };
}

export interface Prometheus extends AsyncDisposable {
  /** @returns the names of the alerts that fire now */
  firing(): Promise<readonly string[]>;
}

export interface PrometheusOptions {
  /** The server's port, which speaks TLS. */
  readonly target: number;
  readonly token: string;
  /** How many times faster than usual everything is. */
  readonly factor: number;
}

/** Starts Prometheus, and waits until it has scraped the server. */
export async function startPrometheus(options: PrometheusOptions): Promise<Prometheus> {
  const { target, token, factor } = options;
  await using resources = new AsyncDisposableStack();
  const directory = resources.use(makeDirectory());
  const { groups } = await readYaml("prometheus/alerts.yml");
  const shortened = groups.map(({ name, rules }: Group) => ({
    name,
    rules: rules.map((rule) => shortenRule(rule, factor)),
  }));
  const interval = shorten(`${SCRAPE_S}s`, factor);
  // JSON is YAML.
  await Bun.write(directory.at("alerts.yml"), JSON.stringify({ groups: shortened }));
  await Bun.write(
    directory.at("prometheus.yml"),
    `
global: { scrape_interval: ${interval}, scrape_timeout: ${interval}, evaluation_interval: ${interval} }
rule_files: [alerts.yml]
scrape_configs:
  - job_name: user-api
    scheme: https
    tls_config: { insecure_skip_verify: true }
    metrics_path: /api/v1/metrics
    authorization: { credentials: "${token}" }
    static_configs: [{ targets: ["127.0.0.1:${target}"] }]
`,
  );
  const running = startProgram([
    prometheus ?? "",
    `--config.file=${directory.at("prometheus.yml")}`,
    `--storage.tsdb.path=${directory.at("data")}`,
    "--web.listen-address=127.0.0.1:0",
  ]);

  resources.defer(async () => {
    running.kill("SIGTERM");
    await running.ended;
  });

  function url(): string | undefined {
    if (running.hasExited()) throw new Error(running.output());
    return /msg="Listening on" address=(\S+)/.exec(running.output())?.[1];
  }
  while (url() === undefined) await Bun.sleep(20);

  async function get(path: string): Promise<any> {
    // It says that it listens before it accepts connections, and accepts them before it can answer.
    const response = await fetch(`http://${url()}/api/v1/${path}`).catch(() => null);
    return response?.ok ? response.json() : {};
  }
  async function hasScraped(): Promise<boolean> {
    return (await get("query?query=up")).data?.result?.[0]?.value[1] === "1";
  }
  while (!(await hasScraped())) await Bun.sleep(50);

  const started = resources.move();
  return {
    async firing() {
      const { data } = await get("alerts");
      const alerts: readonly { state: string; labels: { alertname: string } }[] = data.alerts;
      return alerts.filter(({ state }) => state === "firing").map(({ labels }) => labels.alertname);
    },
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}
