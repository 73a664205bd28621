/**
 * Measures everything, and writes RESULTS.md and results.svg. `--quick` takes about four minutes and writes to
 * `data/`. `--starts 1` takes half as long. `--only PART`, e.g. `--only pairs`, which may be repeated, takes the other
 * parts from the last run. `--report` measures nothing.
 */
import { existsSync, mkdirSync } from "node:fs";
import { parseArgs } from "node:util";
import { measurePairs } from "./baseline.ts";
import { measureFootprints, measureGrowth, measureReadsDuringWrites } from "./footprint.ts";
import { judge, type Results } from "./goals.ts";
import { describeMachine, describeVersions } from "./machine.ts";
import { plot } from "./plot.ts";
import { measurePocketBase } from "./pocketbase.ts";
import { measurePostgres } from "./postgres.ts";
import { LOAD_CORE, output } from "./process.ts";
import { report } from "./report.ts";
import { type Plan, tablesOf } from "./rounds.ts";
import { dataDirectory, removeCopies, type Seed, seed } from "./seed.ts";
import { requireTools } from "./servers.ts";
import { measureDepths, measureReads, measureSizes, measureWrites } from "./sqlite.ts";

const { values: flags } = parseArgs({
  args: Bun.argv.slice(2),
  options: {
    quick: { type: "boolean", default: false },
    report: { type: "boolean", default: false },
    starts: { type: "string" },
    only: { type: "string", multiple: true, default: [] },
  },
});

const settings = flags.quick
  ? {
      plan: { starts: 1, rounds: 1, duration_s: 1, warmupS: 0 },
      pairs: { starts: 2, rounds: 2, duration_s: 1 },
      spareS: 0,
      longS: 1,
      seeds: [
        [10_000, 10_000],
        [100_000, 200_000],
      ],
      pocketbase_users: 10_000,
      postgresDepth: 100_000,
      footprints: 1,
      requests: 200_000,
    }
  : {
      plan: { starts: 2, rounds: 3, duration_s: 1, warmupS: 1 },
      pairs: { starts: 2, rounds: 5, duration_s: 2 },
      spareS: 45,
      longS: 5,
      seeds: [
        [10_000, 10_000],
        [1_000_000, 2_000_000],
        [10_000_000, 0],
      ],
      pocketbase_users: 100_000,
      postgresDepth: 1_000_000,
      footprints: 3,
      requests: 1_000_000,
    };

const plan: Plan = {
  ...settings.plan,
  starts: Number(flags.starts ?? settings.plan.starts),
  spare: { leftMs: settings.spareS * 1000 },
  samples: new Map(),
};
const resultsPath = `${dataDirectory}/results${flags.quick ? "-quick" : ""}.json`;

/** What is not a table. */
type Others = {
  -readonly [Key in "footprints" | "growth" | "pairs" | "reads_during_writes"]: Results[Key];
};

/** @param seedAt creates a seed when the first part needs it */
function partsOf(seedAt: (index: number) => Seed, others: Others) {
  const small = () => seedAt(0);
  const all = () => settings.seeds.map((_, index) => seedAt(index));
  return {
    start: async () => {
      others.footprints = await measureFootprints(settings.footprints);
    },
    reads: () => measureReads(small(), plan),
    depths: () => measureDepths(seedAt(1), plan),
    sizes: () => measureSizes(all(), settings.longS, plan),
    writes: () => measureWrites(small(), plan),
    pocketbase: () => measurePocketBase(seed(settings.pocketbase_users, 0), plan),
    postgres: () => measurePostgres(small(), settings.postgresDepth, plan),
    latency: async () => {
      others.reads_during_writes = await measureReadsDuringWrites(small(), plan);
    },
    growth: async () => {
      others.growth = await measureGrowth(small(), settings.requests);
    },
    pairs: async () => {
      const starts = Number(flags.starts ?? settings.pairs.starts);
      others.pairs = await measurePairs({ ...plan, ...settings.pairs, starts });
    },
  };
}

async function readLastResults(): Promise<Partial<Results>> {
  return existsSync(resultsPath) ? await Bun.file(resultsPath).json() : {};
}

async function measure(): Promise<Results> {
  requireTools();
  // This process must not take time of the server's core.
  output("taskset", "-a", "-c", "-p", String(LOAD_CORE), String(process.pid));
  mkdirSync(dataDirectory, { recursive: true });
  removeCopies();
  const startedMs = performance.now();
  // Before the measurements, since these fail if a tool is missing.
  const where = { machine: describeMachine(), versions: describeVersions() };
  const seeds = new Map<number, Seed>();
  const failures: string[] = [];
  const last: Partial<Results> = flags.only.length === 0 ? {} : await readLastResults();
  const { footprints = [], growth = [], pairs = [], reads_during_writes = [] } = last;
  const others: Others = { footprints, growth, pairs, reads_during_writes };
  const parts = partsOf((index) => {
    const [users = 0, orders = 0] = settings.seeds[index] ?? [];
    return seeds.getOrInsertComputed(index, () => seed(users, orders));
  }, others);
  for (const [name, part] of Object.entries(parts)) {
    if (flags.only.length > 0 && !flags.only.includes(name)) continue;
    try {
      await part();
    } catch (error) {
      // One part that fails must not cost the results of the others.
      console.error(error);
      failures.push(
        `${name}: ${String(error instanceof Error ? error.message : error).split("\n", 1)}`,
      );
    }
    removeCopies();
  }
  const kept = (last.tables ?? []).filter(({ title }) => !plan.samples.has(title));
  return {
    quick: flags.quick,
    date: new Date().toISOString().slice(0, 10),
    minutes: (performance.now() - startedMs) / 60_000,
    starts: plan.starts,
    rounds: plan.rounds,
    duration_s: plan.duration_s,
    ...where,
    tables: [...kept, ...tablesOf(plan)],
    ...others,
    failures,
    sizes: settings.seeds.map(([users = 0]) => users),
    pocketbase_users: settings.pocketbase_users,
  };
}

const results = flags.report ? ((await readLastResults()) as Results) : await measure();
await Bun.write(resultsPath, JSON.stringify(results));
// Only full results are under version control.
const directory = results.quick ? dataDirectory : import.meta.dir;
await Bun.write(`${directory}/RESULTS.md`, report(results));
await Bun.write(`${directory}/results.svg`, plot(results));

console.log(
  `\nWrote ${directory}/RESULTS.md and results.svg in ${results.minutes.toFixed(1)} minutes`,
);
for (const { figure, goal, measured, reached } of judge(results)) {
  if (reached === false) console.log(`  not reached: ${figure}: ${measured}, goal ${goal}`);
}
for (const failure of results.failures) console.log(`  failed: ${failure}`);
if (results.failures.length > 0) process.exitCode = 1;
