/** RESULTS.md: what was reached, what was measured, and what the words mean. */
import { judge, type Results } from "./goals.ts";
import type { Sample } from "./load.ts";
import { counted, type Group, median } from "./rounds.ts";

type Cell = string;

/** A Markdown table; all columns but the first are figures. */
function table(head: readonly Cell[], rows: readonly (readonly Cell[])[]): string {
  const line = (cells: readonly Cell[]) => `| ${cells.join(" | ")} |`;
  const rule = head.map((_, column) => (column === 0 ? "---" : "--:"));
  return [line(head), line(rule), ...rows.map(line)].join("\n");
}

function rounded(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return value.toFixed(value >= 10 ? 1 : 2);
}

function groupTable({ title, rows }: Group): string {
  const cells = rows.map(({ name, samples }) => {
    const valid = counted(samples);
    const rates = valid.map((sample) => sample.requests_per_s);
    const middle = (field: keyof Sample) => rounded(median(valid.map((one) => Number(one[field]))));
    const range = `${rounded(Math.min(...rates))}–${rounded(Math.max(...rates))}`;
    return [
      name,
      middle("requests_per_s"),
      range,
      middle("p50_ms"),
      middle("p99_ms"),
      middle("cpu_us"),
      `${valid.length}/${samples.length}`,
    ];
  });
  const head = ["server", "requests/s", "from–to", "p50, ms", "p99, ms", "CPU, µs/request", "runs"];
  return `### ${title}\n\n${table(head, cells)}`;
}

function verdictTable(results: Results): string {
  const words = { true: "yes", false: "**no**", null: "" };
  const rows = judge(results).map(({ figure, goal, measured, by_cpu, reached }) => [
    figure,
    goal,
    measured,
    by_cpu,
    words[`${reached}`],
  ]);
  return table(["figure", "goal", "measured", "by CPU time", "reached"], rows);
}

function faults(groups: readonly Group[]): string {
  const found = groups.flatMap(({ title, rows }) =>
    rows.flatMap(({ name, samples }) =>
      samples.flatMap(({ fault }) => (fault === null ? [] : [`- ${title}, ${name}: ${fault}`])),
    ),
  );
  return found.length === 0 ? "None: every answer of every run was 2xx." : found.join("\n");
}

function noise(groups: readonly Group[]): string {
  const samples = groups.flatMap(({ rows }) => rows.flatMap((row) => row.samples));
  const parts = samples.map(({ disturbance }) => disturbance * 100);
  const latencies_ns = samples.map(({ memory_ns }) => memory_ns);
  const [least, most] = [Math.min(...latencies_ns), Math.max(...latencies_ns)];
  const wrk = Math.max(...samples.map(({ wrk_load }) => wrk_load * 100));
  return `Others used ${rounded(median(parts))} % of a core in the median run and \
${rounded(Math.max(...parts))} % in the worst; wrk used at most ${rounded(wrk)} % of its own. \
Just before the runs one read beyond a core's own caches took ${least.toFixed(0)} to ${most.toFixed(0)} ns, \
${median(latencies_ns).toFixed(0)} in the median: what else the host does shows there alone, and slows those most who have \
most code and data.`;
}

function besideTable({ beside }: Results): string {
  const middle = (field: keyof (typeof beside)[number]) =>
    rounded(median(beside.map((round) => Number(round[field]))));
  const rows = [
    ["GET /users/:id, p99, ms", middle("read_p99_ms")],
    ["the same of raw Bun.serve while 64 read, ms", middle("floor_p99_ms")],
    ["one sync of a page on this disk, p99, ms", middle("fsync_p99_ms")],
    ["one sync of a page on this disk, p50, ms", middle("fsync_p50_ms")],
    ["writes a second beside", middle("writes_per_s")],
    ["reads a second beside", middle("reads_per_s")],
  ];
  return `### GET /users/:id, 4 connections, while 64 write\n\n${table(["", "median"], rows)}`;
}

function footprintTable({ footprints, growth }: Results): string {
  const rows = footprints.map(({ name, start_ms, idle_mb }) => [
    name,
    rounded(start_ms),
    rounded(idle_mb),
  ]);
  const grown = growth.map(
    ({ requests, memory_mb }) =>
      `- user-api, median until ${requests.toLocaleString("en")} requests: ${rounded(memory_mb)} MB`,
  );
  const head = ["server", "to the first 200, ms", "idle memory, MB"];
  return `### Start and memory (RSS)\n\n${table(head, rows)}\n\n${grown.join("\n")}`;
}

const meanings = `- **user-api** is the compiled binary with its defaults: token from the store on every request, checks,
  request id, one log line a request, \`synchronous=FULL\`.
- **64 tokens**: the other rows use one token. This service looks a token up again when the database has
  changed; here they come with 64 in turn.
- **Elysia and its bearer plugin alone** is what the framework costs before any feature is in: any token
  will do, nothing is checked; **with log lines** it writes the line that the others write.
- **raw** is the ceiling: \`Bun.serve\` routes and one prepared statement, and nothing else: no token, no
  check, no header, no log. Its writes are one transaction a request, FULL or NORMAL as named.
- **Hono, Fastify, Express** have the same features on these paths (token by SHA-256 from the store,
  request id, checks by zod or JSON Schema, envelope, ETag, Idempotency-Key, one JSON line a request
  written in batches), the same schema and pragmas, and one transaction a request. Their databases,
  and those of raw, have none of our triggers.
- **GET one user** is measured in three parts, with user-api or raw in each: so no server stands still for the
  20 s after which its engine throws away what it has compiled. The two figures beside the ceiling, and the one
  of orders against Fastify, are near their goals: they have three times as many rounds.
- **FULL**: each answered write is on disk. **NORMAL**: it can be lost with the power. better-sqlite3 is
  built with NORMAL for WAL, which its README advises, so that is how Fastify and Express run as
  shipped; bun:sqlite stays at FULL, and NORMAL is what guides advise.
- **Node** is the one that this machine has; **newer Node** the current one, which npm brings, with the
  better-sqlite3 that is made for it. The goals were set with the former.
- **plain SQL** is \`count(*)\` and \`limit … offset …\`, served by raw; its table has one run of five times the length a start.
- **On PostgreSQL** the service and the database server share one core, the database's connections are on
  loopback, and \`fsync\` is on. The CPU time is that of both.
- **measured** is the ratio of the medians of all rounds; in each round all take turns (A B A B), and the
  servers are started anew several times, since two starts of one program differ by up to a tenth. A run
  in which others used more than 10 % of a core is made again, and does not count if others are left.
  **by CPU time** is the same by the CPU time of the server's process for one request: it depends less
  on what else the machine does, but says nothing of waiting for the disk.
- An answer that takes longer than a run counts in no rate and no p99, which favours the slow.
- Servers run on core 0 with their log to /dev/null, wrk and all else on core 1.`;

export function report(results: Results): string {
  const list = (entries: Readonly<Record<string, string>>) =>
    Object.entries(entries)
      .map(([name, value]) => `- ${name}: ${value}`)
      .join("\n");
  const kind = results.quick
    ? "`make bench-quick`: a first look, too short to rely on"
    : "`make bench`";
  return `# Results

Made by ${kind}, ${results.date}; ${results.starts} starts with ${results.rounds} round(s) of ${results.duration_s} s each. Not edited.

![Requests a second of each server](results.svg)

## What was to be reached

${verdictTable(results)}

## What it means

${meanings}

## Where

${list(results.machine)}

${list(results.versions)}

${noise(results.groups)}

## What was measured

Medians of all rounds.

${results.groups.map(groupTable).join("\n\n")}

${besideTable(results)}

${footprintTable(results)}

## Runs that do not count

${faults(results.groups)}
`;
}
