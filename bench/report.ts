/** RESULTS.md: what was reached, what was measured, and how. */
import { judge, type Results } from "./goals.ts";
import type { Sample } from "./load.ts";
import { counted, median, type Table } from "./rounds.ts";

/** A Markdown table. All columns but the first and those of reasons are figures. */
function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  const rule = head.map((name, column) => (column === 0 || name === "reason" ? "---" : "--:"));
  return [line(head), line(rule), ...rows.map(line)].join("\n");
}

function round(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return value.toFixed(value >= 10 ? 1 : 2);
}

function sampleTable({ title, rows }: Table): string {
  const cells = rows.map(({ name, samples }) => {
    const valid = counted(samples);
    const rates = valid.map(({ requests_per_s }) => requests_per_s);
    const middle = (field: keyof Sample) => round(median(valid.map((one) => Number(one[field]))));
    return [
      name,
      middle("requests_per_s"),
      `${round(Math.min(...rates))}–${round(Math.max(...rates))}`,
      middle("p50_ms"),
      middle("p99_ms"),
      middle("cpu_us"),
      `${valid.length}/${samples.length}`,
    ];
  });
  const head = ["server", "requests/s", "from–to", "p50, ms", "p99, ms", "CPU, µs/request", "runs"];
  return `### ${title}\n\n${markdownTable(head, cells)}`;
}

function verdictTable(results: Results): string {
  const words = { true: "yes", false: "**no**", null: "" };
  const rows = judge(results).map(({ figure, goal, measured, byCpu, reached, reason }) => {
    return [figure, goal, measured, byCpu, words[`${reached}`], reason];
  });
  return markdownTable(["figure", "goal", "measured", "by CPU time", "reached", "reason"], rows);
}

function pairTable({ pairs }: Results): string {
  const rows = [...Map.groupBy(pairs, ({ load }) => load)].map(([load, rounds]) => {
    const of = (field: "beforeUs" | "nowUs" | "ratio") => rounds.map((one) => one[field]);
    const ratios = [median(of("ratio")), Math.min(...of("ratio")), Math.max(...of("ratio"))];
    const times = [round(median(of("beforeUs"))), round(median(of("nowUs")))];
    return [load, ...times, ...ratios.map((ratio) => ratio.toFixed(3))];
  });
  const head = ["load", "before, µs", "now, µs", "ratio", "smallest", "largest"];
  return `### CPU time per request, and in the version before\n\n${markdownTable(head, rows)}`;
}

function faults({ tables, failures }: Results): string {
  const found = tables.flatMap(({ title, rows }) =>
    rows.flatMap(({ name, samples }) =>
      samples.flatMap(({ fault }) => (fault === null ? [] : [`- ${title}, ${name}: ${fault}`])),
    ),
  );
  const all = [...failures.map((failure) => `- Not measured: ${failure}`), ...found];
  return all.length === 0 ? "None: every response of every run was 2xx." : all.join("\n");
}

function noise({ tables }: Results): string {
  const samples = tables.flatMap(({ rows }) => rows.flatMap((row) => row.samples));
  const percents = samples.map(({ disturbance }) => disturbance * 100);
  const wrk = Math.max(...samples.map(({ wrk_load }) => wrk_load * 100));
  return `Other processes used ${round(median(percents))} % of a core in the median run and \
${round(Math.max(...percents))} % in the worst. wrk used at most ${round(wrk)} % of its core.`;
}

function duringWritesTable({ reads_during_writes: rounds }: Results): string {
  const middle = (field: keyof (typeof rounds)[number]) =>
    round(median(rounds.map((one) => one[field])));
  const rows = [
    ["GET /users/:id, p99, ms", middle("read_p99_ms")],
    ["the same of raw Bun.serve while 64 clients read, ms", middle("floor_p99_ms")],
    ["one fsync of a page on this disk, p99, ms", middle("fsync_p99_ms")],
    ["one fsync of a page on this disk, p50, ms", middle("fsync_p50_ms")],
    ["writes per second", middle("writes_per_s")],
    ["reads per second", middle("reads_per_s")],
  ];
  const title = "### GET /users/:id, 4 connections, while 64 clients write";
  return `${title}\n\n${markdownTable(["", "median"], rows)}`;
}

function list(entries: Readonly<Record<string, string>>): string {
  return Object.entries(entries)
    .map(([name, value]) => `- ${name}: ${value}`)
    .join("\n");
}

export function report(results: Results): string {
  const { quick, date, minutes, starts, rounds, duration_s, tables } = results;
  const command = quick ? "`make bench-quick` (too short to rely on)" : "`make bench`";
  return `# Results

Written by ${command} on ${date} in ${minutes.toFixed(0)} minutes: ${starts} start(s) with ${rounds} round(s) of \
${duration_s} s. Not edited.

[Method](METHOD.md) explains the servers and the method.

![Requests per second of each server](results.svg)

## Goals

${verdictTable(results)}

## Machine and versions

${list(results.machine)}

${list(results.versions)}

${noise(results)}

## Measurements

Medians of all rounds.

${tables.map(sampleTable).join("\n\n")}

${duringWritesTable(results)}

${pairTable(results)}

## Runs that do not count

${faults(results)}
`;
}
