/** The goals, and which of them were reached. */
import type { Pair } from "./baseline.ts";
import type { Footprint, Growth, ReadsDuringWrites } from "./footprint.ts";
import { loadsOf, pocketbase } from "./pocketbase.ts";
import * as postgres from "./postgres.ts";
import { median, medianOf, type Table } from "./rounds.ts";
import * as sqlite from "./sqlite.ts";

export interface Results {
  readonly quick: boolean;
  readonly date: string;
  readonly minutes: number;
  readonly starts: number;
  readonly rounds: number;
  readonly duration_s: number;
  readonly machine: Readonly<Record<string, string>>;
  readonly versions: Readonly<Record<string, string>>;
  readonly tables: readonly Table[];
  readonly reads_during_writes: readonly ReadsDuringWrites[];
  readonly footprints: readonly Footprint[];
  readonly growth: readonly Growth[];
  readonly pairs: readonly Pair[];
  /** Parts that failed, with the reason. */
  readonly failures: readonly string[];
  /** Numbers of rows of the tables that the first page is read from. */
  readonly sizes: readonly number[];
  /** Number of users that PocketBase has. */
  readonly pocketbase_users: number;
}

export interface Verdict {
  readonly figure: string;
  readonly goal: string;
  readonly measured: string;
  /** The same ratio by the CPU time per request. */
  readonly byCpu: string;
  /** `null` if there is no goal, or no measurement. */
  readonly reached: boolean | null;
  /** Why it is a goal, and why it was missed. Empty if it is none. */
  readonly reason: string;
}

interface Goal {
  /** The smallest ratio that is good enough, or what a value must stay below. */
  readonly bound: number;
  /** What user-api promises. */
  readonly reason: string;
  /** Why it is missed. Only shown if it is. */
  readonly missed?: string;
}

/** Which row of a table is divided by which. Without a goal, it is for comparison only. */
type Ratio = readonly [title: string, name: string, other: string, goal?: Goal | undefined];

const sameWork = "The same features with another framework must not be faster";
const otherRuntime = "The same features on Node, the usual choice: what Bun is for";
const anyPage = "Every page is as fast as the first one, with an exact total";
const sharedSync = "Clients that write at the same time share a sync of the disk";

function sqliteRatios({ sizes }: Results): Ratio[] {
  const { ours, noLog, ceiling, sizeName } = sqlite;
  const { readsTitle, depthsTitle, sizesTitle, createTitle, ordersTitle } = sqlite;
  const [least = 0, most = 0] = [sizes[0], sizes.at(-1)];
  const framework = "All features together cost less than the hooks of the framework would";
  const large = "The counts that make totals exact pay off where tables are large";
  const anySize = "Lists are as fast on large tables as on small ones";
  const durable = "A durable write costs little more than one that may be lost";
  return [
    [readsTitle, ours, "Elysia alone, with log lines", { bound: 1.05, reason: framework }],
    [readsTitle, noLog, "Elysia alone", { bound: 1, reason: `${framework}, without the log` }],
    [readsTitle, ours, ceiling],
    [readsTitle, noLog, ceiling],
    [readsTitle, ours, "Hono on Bun", { bound: 1.1, reason: sameWork }],
    [readsTitle, ours, "Fastify", { bound: 3, reason: otherRuntime }],
    [depthsTitle, "deep offset", "first page", { bound: 0.8, reason: anyPage }],
    [depthsTitle, "deep after", "first page", { bound: 0.9, reason: anyPage }],
    [sizesTitle, sizeName(ours, most), sizeName(ours, least), { bound: 0.9, reason: anySize }],
    ...sizes.map((rows): Ratio => {
      // On a small table, plain SQL is fast, and it has no token, validation or log.
      const goal = rows === least ? undefined : { bound: 1, reason: large };
      return [sizesTitle, sizeName(ours, rows), sizeName("plain SQL", rows), goal];
    }),
    [createTitle, ours, "raw, FULL", { bound: 5, reason: sharedSync }],
    [createTitle, ours, "raw, NORMAL", { bound: 0.6, reason: durable }],
    [createTitle, ours, "Hono, NORMAL"],
    [ordersTitle, ours, "Fastify, FULL", { bound: 5, reason: sharedSync }],
  ];
}

function postgresRatios(): Ratio[] {
  const { loads, loneLoads, nearTitle, farTitle, deepTitle, updateTitle } = postgres;
  const { onPostgres, onSqlite, hono, fastify } = postgres;
  const onePage = "A page and its exact total take one statement";
  const sharedWrite = "Writes at the same time share a transaction";
  const safe = "A write that can be repeated safely costs little more";
  const move = "Moving to PostgreSQL costs little speed, though it shares the core";
  // In µs, SQLite: HTTP 36, SQL 17, compilers and collector 3. PostgreSQL: HTTP 36, driver 6, backend 45 (20 rows as JSON 23).
  const rendered =
    "PostgreSQL and HTTP alone would have 0.64: the rest is two processes that take turns";
  const goals = [
    { load: loads.get, bounds: [0.8, 3, 5], reason: "Reads at the same time share a statement" },
    { load: loads.list, bounds: [0.45, 1.6, 1.6], reason: onePage, moved: rendered },
    { load: loads.create, bounds: [0.8, 4, 8], reason: sharedWrite },
    { load: loads.order, bounds: [0.75, 7, 9], reason: `${sharedWrite}, with their keys` },
  ];
  return [
    ...goals.flatMap(({ load, bounds, reason, moved = move }) =>
      [onSqlite, hono, fastify].map((other, index): Ratio => {
        const goal = { bound: bounds[index] ?? 0, reason: index === 0 ? moved : reason };
        return [nearTitle(load), onPostgres, other, goal];
      }),
    ),
    [updateTitle, "with a key", "without a key", { bound: 0.7, reason: safe }],
    ...Object.values(loneLoads).map((load): Ratio => [nearTitle(load), onPostgres, onSqlite]),
    [deepTitle, "deep after", "first page", { bound: 0.9, reason: anyPage }],
    ...Object.values(loads).flatMap((load): Ratio[] => [
      [farTitle(load), onPostgres, hono],
      [farTitle(load), onPostgres, fastify],
    ]),
  ];
}

function pairGoal(load: string): Goal {
  const parsed = "Since 79f5ba3, SQLite parses no JSON that the server has just written";
  if (load.includes("100 items")) return { bound: 0.75, reason: parsed };
  const reason = "No version costs more than the one before";
  return { bound: load.startsWith("list") ? 1.02 : 1.05, reason };
}

export function tableOf({ tables }: Results, title: string): Table | undefined {
  return tables.find((table) => table.title === title);
}

function show(ratio: number): string {
  if (Number.isNaN(ratio)) return "not measured";
  return ratio < 0.1 ? ratio.toPrecision(1) : ratio.toFixed(2);
}

function outcome(goal: Goal | undefined, value: number, isGood: boolean) {
  const reached = goal === undefined || Number.isNaN(value) ? null : isGood;
  const missed = reached === false && goal?.missed ? `. **Missed:** ${goal.missed}` : "";
  return { reached, reason: `${goal?.reason ?? ""}${missed}` };
}

function judgeRatio(results: Results, [title, name, other, goal]: Ratio): Verdict {
  const table = tableOf(results, title);
  const of = (row: string, field: "requests_per_s" | "cpu_us") => medianOf(table, row, field);
  const ratio = of(name, "requests_per_s") / of(other, "requests_per_s");
  return {
    figure: `${title}: ${name} / ${other}`,
    goal: goal === undefined ? "" : `≥ ${goal.bound}`,
    measured: show(ratio),
    byCpu: show(of(other, "cpu_us") / of(name, "cpu_us")),
    ...outcome(goal, ratio, ratio >= (goal?.bound ?? 0)),
  };
}

/** What is measured in a unit. */
type Limit = readonly [figure: string, value: number, unit: string, goal?: Goal];

function limitsOf(results: Results): Limit[] {
  const { reads_during_writes, footprints, growth } = results;
  const { ours } = sqlite;
  const perSync = (field: "read_p99_ms" | "floor_p99_ms") =>
    median(reads_during_writes.map((round) => round[field] / round.fsync_p99_ms));
  const started = (server: string, field: "start_ms" | "idle_mb" | "sizeMb") =>
    median(footprints.filter((round) => round.server === server).map((round) => round[field]));
  const [first = Number.NaN, second = Number.NaN] = growth.map(({ memory_mb }) => memory_mb);
  const requests = (growth[1]?.requests ?? 0).toLocaleString("en");
  const loneTitle = postgres.nearTitle(postgres.loneLoads.order);
  const loneMs = medianOf(tableOf(results, loneTitle), postgres.onPostgres, "p50_ms");
  const waitedFor = perSync("read_p99_ms");
  const reads = {
    bound: 10,
    reason: "Whoever reads waits for a few writes, not for all that wait",
    missed: "reads and writes share one thread: a read waits for the batch before it",
  };
  const restart = { bound: 100, reason: "A restart is a pause for clients" };
  const small = "It runs on the smallest machines";
  const peak = { bound: 150, reason: small };
  const steady = { bound: 1.05, reason: "It runs for months: more than noise would be a leak" };
  return [
    [`${loneTitle}: p50`, loneMs, " ms"],
    ["p99 of GET /users/:id while 64 clients write / of one fsync", waitedFor, "", reads],
    ["The same of raw Bun.serve while 64 clients read", perSync("floor_p99_ms"), ""],
    ["First 200 after a start in an empty directory", started(ours, "start_ms"), " ms", restart],
    ["The same of PocketBase", started(pocketbase, "start_ms"), " ms"],
    ["Idle memory", started(ours, "idle_mb"), " MB", { bound: 80, reason: small }],
    ["The same of PocketBase", started(pocketbase, "idle_mb"), " MB"],
    ["Size of the executable", started(ours, "sizeMb"), " MB"],
    ["The same of PocketBase", started(pocketbase, "sizeMb"), " MB"],
    [`Memory in the second half of ${requests} requests`, second, " MB", peak],
    ["The same / in the first half", second / first, "", steady],
    ...[...Map.groupBy(results.pairs, ({ load }) => load)].map(([load, rounds]): Limit => {
      const ratio = median(rounds.map((round) => round.ratio));
      return [`CPU time of ${load} / in the version before`, ratio, "", pairGoal(load)];
    }),
  ];
}

function judgeLimit([figure, value, unit, goal]: Limit): Verdict {
  const measured = `${value.toFixed(value < 10 ? 2 : 0)}${unit}`;
  return {
    figure,
    goal: goal === undefined ? "" : `< ${goal.bound}${unit}`,
    measured: Number.isNaN(value) ? "not measured" : measured,
    byCpu: "",
    ...outcome(goal, value, value < (goal?.bound ?? Infinity)),
  };
}

export function judge(results: Results): Verdict[] {
  const peers = Object.values(loadsOf(results.pocketbase_users)).map(
    ({ title }): Ratio => [title, sqlite.ours, pocketbase],
  );
  const ratios = [...sqliteRatios(results), ...peers, ...postgresRatios()];
  return [
    ...ratios.map((ratio) => judgeRatio(results, ratio)),
    ...limitsOf(results).map(judgeLimit),
  ];
}
