/** The goals, and which of them were reached. */
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
}

/** Which row of a table is divided by which, and the smallest ratio that is good enough. */
type Ratio = readonly [title: string, name: string, other: string, goal?: number];

function sqliteRatios({ sizes }: Results): Ratio[] {
  const { ours, ceiling } = sqlite;
  const { readsTitle, depthsTitle, sizesTitle, createTitle, ordersTitle } = sqlite;
  const [least = 0, most = 0] = [sizes[0], sizes.at(-1)];
  return [
    [readsTitle, ours, ceiling, 0.72],
    [readsTitle, sqlite.noLog, ceiling, 0.8],
    [readsTitle, "Elysia alone, with log lines", ceiling],
    [readsTitle, "Elysia alone", ceiling],
    [readsTitle, ours, "Hono on Bun", 1.1],
    [readsTitle, ours, "Fastify", 3],
    [depthsTitle, "deep offset", "first page", 0.8],
    [depthsTitle, "deep after", "first page", 0.9],
    [sizesTitle, sqlite.sizeName(ours, most), sqlite.sizeName(ours, least), 0.9],
    ...sizes.map((rows): Ratio => {
      return [sizesTitle, sqlite.sizeName(ours, rows), sqlite.sizeName("plain SQL", rows), 1];
    }),
    [createTitle, ours, "raw, FULL", 5],
    [createTitle, ours, "raw, NORMAL", 0.6],
    [createTitle, ours, "Hono, NORMAL"],
    [ordersTitle, ours, "Fastify, FULL", 5],
  ];
}

function postgresRatios(): Ratio[] {
  const { loads, loneLoads, nearTitle, farTitle, deepTitle } = postgres;
  const { onPostgres, onSqlite, hono, fastify } = postgres;
  const goals = [
    { load: loads.get, [onSqlite]: 0.65, [hono]: 3, [fastify]: 5 },
    { load: loads.list, [onSqlite]: 0.5, [hono]: 1.6, [fastify]: 1.6 },
    { load: loads.create, [onSqlite]: 0.55, [hono]: 4, [fastify]: 8 },
    { load: loads.order, [onSqlite]: 0.65, [hono]: 7, [fastify]: 9 },
  ];
  return [
    ...goals.flatMap(({ load, ...others }) =>
      Object.entries(others).map(([other, goal]): Ratio => {
        return [nearTitle(load), onPostgres, other, goal];
      }),
    ),
    ...Object.values(loneLoads).map((load): Ratio => [nearTitle(load), onPostgres, onSqlite]),
    [deepTitle, "deep after", "first page", 0.9],
    ...Object.values(loads).flatMap((load): Ratio[] => [
      [farTitle(load), onPostgres, hono],
      [farTitle(load), onPostgres, fastify],
    ]),
  ];
}

export function tableOf({ tables }: Results, title: string): Table | undefined {
  return tables.find((table) => table.title === title);
}

function show(ratio: number): string {
  if (Number.isNaN(ratio)) return "not measured";
  return ratio < 0.1 ? ratio.toPrecision(1) : ratio.toFixed(2);
}

function judgeRatio(results: Results, [title, name, other, goal]: Ratio): Verdict {
  const table = tableOf(results, title);
  const of = (row: string, field: "requests_per_s" | "cpu_us") => medianOf(table, row, field);
  const ratio = of(name, "requests_per_s") / of(other, "requests_per_s");
  return {
    figure: `${title}: ${name} / ${other}`,
    goal: goal === undefined ? "" : `≥ ${goal}`,
    measured: show(ratio),
    byCpu: show(of(other, "cpu_us") / of(name, "cpu_us")),
    reached: goal === undefined || Number.isNaN(ratio) ? null : ratio >= goal,
  };
}

/** What is measured in a unit, and the value that it must stay below. */
type Limit = readonly [figure: string, value: number, unit: string, limit?: number];

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
  return [
    [`${loneTitle}: p50`, loneMs, " ms"],
    ["p99 of GET /users/:id while 64 clients write / of one fsync", perSync("read_p99_ms"), "", 3],
    ["The same of raw Bun.serve while 64 clients read", perSync("floor_p99_ms"), ""],
    ["First 200 after a start in an empty directory", started(ours, "start_ms"), " ms", 100],
    ["The same of PocketBase", started(pocketbase, "start_ms"), " ms"],
    ["Idle memory", started(ours, "idle_mb"), " MB", 80],
    ["The same of PocketBase", started(pocketbase, "idle_mb"), " MB"],
    ["Size of the executable", started(ours, "sizeMb"), " MB"],
    ["The same of PocketBase", started(pocketbase, "sizeMb"), " MB"],
    [`Memory in the second half of ${requests} requests`, second, " MB", 150],
    // Growth below this is noise of the garbage collector.
    ["The same / in the first half", second / first, "", 1.05],
  ];
}

function judgeLimit([figure, value, unit, limit]: Limit): Verdict {
  const measured = `${value.toFixed(value < 10 ? 2 : 0)}${unit}`;
  return {
    figure,
    goal: limit === undefined ? "" : `< ${limit}${unit}`,
    measured: Number.isNaN(value) ? "not measured" : measured,
    byCpu: "",
    reached: limit === undefined || Number.isNaN(value) ? null : value < limit,
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
