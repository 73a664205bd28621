/** Rounds in the order A B A B: a slow minute of the machine affects all servers alike. */
import { apply, type Load, type Request, type Sample } from "./load.ts";
import { busyTimeUs, LOAD_CORE, output, SERVER_CORE } from "./process.ts";
import type { Running } from "./servers.ts";

export interface Plan {
  /** How often all servers are restarted: two starts of one program differ by up to 10 %. */
  readonly starts: number;
  /** Rounds per start. */
  readonly rounds: number;
  readonly duration_s: number;
  /** 0 for none. */
  readonly warmupS: number;
  /** Time that is left for waiting until the cores are idle and for repeating disturbed runs. */
  readonly spare: { leftMs: number };
  /** What has been measured: title of a table, then name of a row. */
  readonly samples: Map<string, Map<string, Sample[]>>;
}

/** A run is disturbed if other processes use more than this part of a core. */
const DISTURBED = 0.1;
const LOOK_MS = 100;
/** Maximum number of times that a disturbed run is repeated. */
const MAX_REPEATS = 2;
/** Engines discard compiled code of a server that was idle for 20 s. */
const WARM_MS = 15_000;

/** Waits until other processes leave the cores alone, or no spare time is left. */
export async function untilQuiet({ spare }: Plan): Promise<void> {
  const busyUs = () => busyTimeUs(SERVER_CORE) + busyTimeUs(LOAD_CORE);
  while (spare.leftMs > 0) {
    const beforeUs = busyUs();
    await Bun.sleep(LOOK_MS);
    if (busyUs() - beforeUs <= LOOK_MS * 1000 * DISTURBED) return;
    spare.leftMs -= LOOK_MS;
  }
}

/** One row of a table: a server under a load. */
export interface Entry {
  readonly name: string;
  readonly server: Running;
  readonly request: Request;
  readonly connections: number;
}

/** One table of the results. */
export interface Table {
  readonly title: string;
  readonly rows: readonly { readonly name: string; readonly samples: readonly Sample[] }[];
}

/** @returns `/api/v1/users, 64 connections` for `titleOf("/api/v1/users", 64)` */
export function titleOf(what: string, connections: number): string {
  return `${what}, ${connections} connection${connections === 1 ? "" : "s"}`;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

function describe({ requests_per_s, p99_ms, cpu_us, disturbance, fault }: Sample): string {
  const rate = `${requests_per_s.toFixed(0)}/s, p99 ${p99_ms.toFixed(2)} ms, ${cpu_us.toFixed(1)} µs CPU`;
  return `${rate}, others ${(disturbance * 100).toFixed(0)} %${fault === null ? "" : `: ${fault}`}`;
}

/** @returns the first undisturbed run, or the least disturbed one; a run with a fault is never repeated */
async function measure({ server, request, connections }: Entry, warm: boolean, plan: Plan) {
  const load: Load = { request, connections, duration_s: plan.duration_s };
  // Dirty pages of the previous server must not be written during this run.
  output("sync");
  await untilQuiet(plan);
  if (!warm && plan.warmupS > 0) await apply(server, { ...load, duration_s: plan.warmupS });
  let best = await apply(server, load);
  for (let repeat = 0; repeat < MAX_REPEATS && plan.spare.leftMs > 0; repeat += 1) {
    if (best.disturbance <= DISTURBED || best.fault !== null) break;
    await untilQuiet(plan);
    const next = await apply(server, load);
    plan.spare.leftMs -= load.duration_s * 1000;
    if (next.disturbance < best.disturbance || next.fault !== null) best = next;
  }
  return best;
}

/** Measures the entries in turns, and adds the samples to a table. */
export async function interleave(
  title: string,
  entries: readonly Entry[],
  plan: Plan,
): Promise<void> {
  console.log(`\n${title}`);
  const rows = plan.samples.getOrInsertComputed(title, () => new Map());
  const lastMs = new Map<Entry, number>();
  for (let round = 0; round < plan.rounds; round += 1) {
    for (const entry of entries) {
      const warm = performance.now() - (lastMs.get(entry) ?? -Infinity) < WARM_MS;
      const sample = await measure(entry, warm, plan);
      lastMs.set(entry, performance.now());
      rows.getOrInsertComputed(entry.name, () => []).push(sample);
      console.log(`  ${entry.name}: ${describe(sample)}`);
    }
  }
}

export function tablesOf({ samples }: Plan): Table[] {
  return [...samples].map(([title, rows]) => ({
    title,
    rows: [...rows].map(([name, samples]) => ({ name, samples })),
  }));
}

/** Measures once per start. `work` starts the servers. */
export async function restarted({ starts }: Plan, work: () => Promise<void>): Promise<void> {
  for (let start = 0; start < starts; start += 1) await work();
}

/** @returns the samples that count: those without a fault, and only undisturbed ones if there are any */
export function counted(samples: readonly Sample[]): readonly Sample[] {
  const valid = samples.filter(({ fault }) => fault === null);
  const quiet = valid.filter(({ disturbance }) => disturbance <= DISTURBED);
  return quiet.length === 0 ? valid : quiet;
}

/** @returns the median of a field over the samples of a row that count; `NaN` if the row was not measured */
export function medianOf(
  table: Table | undefined,
  name: string,
  field: "requests_per_s" | "cpu_us" | "p50_ms",
): number {
  const samples = table?.rows.find((row) => row.name === name)?.samples ?? [];
  return median(counted(samples).map((sample) => sample[field]));
}
