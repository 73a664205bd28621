/**
 * Measures all, and writes RESULTS.md and results.svg: `bun run.ts`. With `--quick` in two minutes,
 * roughly, and into `data/`. With `--report` only writes anew what was measured last.
 */
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { requireAll } from "./contenders.ts";
import { measureFootprints, measureGrowth } from "./footprint.ts";
import { judge, type Results } from "./goals.ts";
import { measureDepths, measureSizes } from "./lists.ts";
import { describeMachine, describeVersions } from "./machine.ts";
import { plot } from "./plot.ts";
import { measurePostgres } from "./postgres.ts";
import { LOAD_CORE } from "./process.ts";
import { measureReads } from "./reads.ts";
import { report } from "./report.ts";
import { restarted } from "./rounds.ts";
import { data_folder, type Seed, seed } from "./seed.ts";
import { measureBeside, measureWrites } from "./writes.ts";

const quick = Bun.argv.includes("--quick");
const again = Bun.argv.includes("--report");

const settings = quick
  ? {
      plan: {
        starts: 1,
        rounds: 1,
        near_rounds: 1,
        duration_s: 1,
        warmup_s: 1,
        repeats: 0,
        patience_s: 0,
      },
      connections: [64],
      seeds: [
        [10_000, 10_000],
        [100_000, 200_000],
      ],
      footprints: 1,
      requests: 200_000,
    }
  : {
      plan: {
        starts: 3,
        rounds: 3,
        near_rounds: 9,
        duration_s: 1,
        warmup_s: 1,
        repeats: 2,
        patience_s: 20,
      },
      connections: [1, 8, 64, 256],
      seeds: [
        [10_000, 10_000],
        [1_000_000, 2_000_000],
        [10_000_000, 0],
      ],
      footprints: 5,
      requests: 1_000_000,
    };

const results_path = `${data_folder}/results${quick ? "-quick" : ""}.json`;

/** Copies and folders of earlier runs; the seeds stay. */
function tidy(): void {
  for (const file of readdirSync(data_folder)) {
    if (/^(?:run|cold|draft|fsync)-/.test(file))
      rmSync(`${data_folder}/${file}`, { recursive: true });
  }
}

async function measure(): Promise<Results> {
  requireAll();
  // What is left of one core is not enough for a server.
  Bun.spawnSync(["taskset", "-a", "-c", "-p", String(LOAD_CORE), String(process.pid)]);
  mkdirSync(data_folder, { recursive: true });
  tidy();
  const seeds = settings.seeds.map(([users = 0, orders = 0]) => seed(users, orders));
  const [small, medium] = seeds as [Seed, Seed];
  const { plan } = settings;
  // Plain SQL takes up to a second for one answer where there are many rows, and eight ask.
  const long = { ...plan, rounds: 1, duration_s: 5 * plan.duration_s };
  const footprints = await measureFootprints(small, settings.footprints);
  const groups = [
    ...(await restarted(plan, async () => [await measureReads(small, plan)])),
    ...(await restarted(plan, async () => [await measureDepths(medium, plan)])),
    ...(await restarted(plan, async () => [await measureSizes(seeds, long)])),
    ...(await restarted(plan, () => measureWrites(small, settings.connections, plan))),
    ...(await restarted(plan, () => measurePostgres(small, plan))),
  ];
  const beside = await measureBeside(small, plan);
  const growth = await measureGrowth(small, settings.requests);
  tidy();
  return {
    quick,
    date: new Date().toISOString().slice(0, 10),
    starts: plan.starts,
    rounds: plan.rounds,
    duration_s: plan.duration_s,
    machine: describeMachine(),
    versions: describeVersions(),
    groups,
    beside,
    footprints,
    growth,
    sizes: seeds.map(({ users }) => users),
    depth: medium.orders / 2,
  };
}

const results: Results = again ? await Bun.file(results_path).json() : await measure();
await Bun.write(results_path, JSON.stringify(results));
// A first look is not what is kept under version control.
const folder = results.quick ? data_folder : import.meta.dir;
await Bun.write(`${folder}/RESULTS.md`, report(results));
await Bun.write(`${folder}/results.svg`, plot(results));

const missed = judge(results).filter(({ reached }) => reached === false);
console.log(`\nWritten: ${folder}/RESULTS.md and results.svg. Goals not reached: ${missed.length}`);
for (const { figure, goal, measured } of missed)
  console.log(`  ${figure}: ${measured}, goal ${goal}`);
