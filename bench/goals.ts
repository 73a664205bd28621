/** What was to be reached, and what was. */
import { cold, type Footprint, type Growth } from "./footprint.ts";
import { depthName, depths_title, sizeName, sizes_title } from "./lists.ts";
import { on_postgres, on_sqlite, postgres_titles } from "./postgres.ts";
import { framework, framework_logging, many_tokens, ours, reads_title } from "./reads.ts";
import { compare, type Group, median } from "./rounds.ts";
import { type Beside, titleOf } from "./writes.ts";

export interface Results {
  readonly quick: boolean;
  readonly date: string;
  readonly starts: number;
  readonly rounds: number;
  readonly duration_s: number;
  readonly machine: Readonly<Record<string, string>>;
  readonly versions: Readonly<Record<string, string>>;
  readonly groups: readonly Group[];
  readonly beside: readonly Beside[];
  readonly footprints: readonly Footprint[];
  readonly growth: readonly Growth[];
  /** Rows of the small and of the large end of each comparison of lists. */
  readonly sizes: readonly number[];
  readonly depth: number;
}

export interface Verdict {
  readonly figure: string;
  readonly goal: string;
  readonly measured: string;
  /** The same ratio by the CPU time that a request costs the server. */
  readonly by_cpu: string;
  /** `null` where there is no goal. */
  readonly reached: boolean | null;
}

export function groupOf(results: Results, title: string): Group {
  const group = results.groups.find((candidate) => candidate.title === title);
  if (group === undefined) throw new Error(`nothing was measured of ${title}`);
  return group;
}

function shownRatio(ratio: number): string {
  return ratio < 0.1 ? ratio.toPrecision(1) : ratio.toFixed(2);
}

function ratioVerdict(
  figure: string,
  group: Group,
  [name, other]: readonly [string, string],
  goal: number | null,
): Verdict {
  const { ratio, cpu_ratio } = compare(group, name, other);
  return {
    figure,
    goal: goal === null ? "" : `≥ ${goal}`,
    measured: shownRatio(ratio),
    by_cpu: shownRatio(cpu_ratio),
    reached: goal === null ? null : ratio >= goal,
  };
}

function limitVerdict(figure: string, value: number, limit: number, unit: string): Verdict {
  const digits = unit === "" ? 2 : 0;
  return {
    figure,
    goal: `< ${limit}${unit}`,
    measured: `${value.toFixed(digits)}${unit}`,
    by_cpu: "",
    reached: value < limit,
  };
}

function readVerdicts(results: Results): Verdict[] {
  const group = groupOf(results, reads_title);
  const against: readonly [string, string, number | null][] = [
    [ours, "raw Bun.serve", 0.7],
    [`${ours}, no log lines`, "raw Bun.serve", 0.8],
    [framework_logging, "raw Bun.serve", null],
    [framework, "raw Bun.serve", null],
    [many_tokens, "raw Bun.serve", null],
    [ours, "Hono on Bun", 1.1],
    [ours, "Fastify", 3],
    [ours, "Express", 6],
    [ours, "Fastify, newer Node", null],
    [ours, "Express, newer Node", null],
  ];
  return against.map(([name, other, goal]) =>
    ratioVerdict(`GET one user: ${name} / ${other}`, group, [name, other], goal),
  );
}

function listVerdicts(results: Results): Verdict[] {
  const depth = [depthName(results.depth), depthName(0)] as const;
  const [few = 0, ...more] = results.sizes;
  const many = more.at(-1) ?? few;
  const size = [sizeName(ours, many), sizeName(ours, few)] as const;
  const rows = `${many.toLocaleString("en")} rows / at ${few.toLocaleString("en")}`;
  return [
    ratioVerdict(`List of 20: ${depth[0]} / offset 0`, groupOf(results, depths_title), depth, 0.8),
    ratioVerdict(`List of 20 at ${rows}`, groupOf(results, sizes_title), size, 0.9),
  ];
}

function writeVerdicts(results: Results): Verdict[] {
  const verdicts: Verdict[] = [];
  for (const connections of [1, 8, 64, 256]) {
    const title = titleOf("post-user", connections);
    const group = results.groups.find((candidate) => candidate.title === title);
    if (group === undefined) continue;
    const counted = connections === 64;
    const raw = (mode: string) => `${title}: ${ours} / one transaction a request, ${mode}`;
    verdicts.push(ratioVerdict(raw("FULL"), group, [ours, "raw, FULL"], counted ? 5 : null));
    verdicts.push(ratioVerdict(raw("NORMAL"), group, [ours, "raw, NORMAL"], counted ? 0.6 : null));
    if (!counted) continue;
    const figure = `${title}: ${ours} / Hono with the same features, NORMAL`;
    verdicts.push(ratioVerdict(figure, group, [ours, "Hono, NORMAL"], null));
  }
  const orders = groupOf(results, titleOf("post-order", 64));
  for (const [other, goal] of [
    ["Fastify, FULL", 5],
    ["Fastify, newer Node, FULL", null],
  ] as const) {
    verdicts.push(ratioVerdict(`${orders.title}: ${ours} / ${other}`, orders, [ours, other], goal));
  }
  return verdicts;
}

/** None where there was no PostgreSQL. */
function postgresVerdicts({ groups }: Results): Verdict[] {
  return groups
    .filter(({ title }) => postgres_titles.includes(title))
    .map((group) =>
      ratioVerdict(`${group.title} / on SQLite`, group, [on_postgres, on_sqlite], null),
    );
}

/** Growth up to this in the second half of the requests is noise of the collector. */
const FLAT = 1.05;

function footprintVerdicts({ beside, footprints, growth }: Results): Verdict[] {
  const ratios = beside.map((round) => round.read_p99_ms / round.fsync_p99_ms);
  const start = footprints.find(({ name }) => name === cold);
  const [half, full] = growth;
  if (start === undefined || half === undefined || full === undefined) return [];
  const requests = full.requests.toLocaleString("en");
  return [
    limitVerdict("GET p99 while 64 write / p99 of one sync", median(ratios), 3, ""),
    {
      figure: "The same of raw Bun.serve while 64 read, so without any write",
      goal: "",
      measured: median(beside.map((round) => round.floor_p99_ms / round.fsync_p99_ms)).toFixed(2),
      by_cpu: "",
      reached: null,
    },
    limitVerdict("Cold start in an empty folder to the first 200", start.start_ms, 100, " ms"),
    limitVerdict("Idle memory", start.idle_mb, 80, " MB"),
    limitVerdict(`Memory in the second half of ${requests} requests`, full.memory_mb, 150, " MB"),
    limitVerdict("The same / in the first half", full.memory_mb / half.memory_mb, FLAT, ""),
  ];
}

export function judge(results: Results): Verdict[] {
  return [
    ...readVerdicts(results),
    ...listVerdicts(results),
    ...writeVerdicts(results),
    ...postgresVerdicts(results),
    ...footprintVerdicts(results),
  ];
}
