/** A B A B: what is compared takes turns, so that a slow minute of the machine meets all alike. */
import type { Running } from "./contenders.ts";
import { apply, type Load, type Sample } from "./load.ts";
import { busyTime_us, LOAD_CORE, SERVER_CORE } from "./process.ts";

export interface Plan {
  /** How often all servers are started anew: two starts of one program differ by up to a tenth. */
  readonly starts: number;
  /** Of each start. */
  readonly rounds: number;
  /** Of those whose figure is near its goal: on a shared host a second is a quarter off the next. */
  readonly near_rounds: number;
  readonly duration_s: number;
  /** Just before each run. */
  readonly warmup_s: number;
  /** How often a run is made again at most when others took too much of its cores. */
  readonly repeats: number;
  /** How long a run waits at most for others to leave the cores alone. */
  readonly patience_s: number;
}

/** Above this part of a core a run is disturbed. */
const DISTURBED = 0.1;
const LOOK_MS = 250;

/** Waits for others to leave the cores alone. */
export async function untilQuiet(patience_s: number): Promise<void> {
  const busy_us = () => busyTime_us(SERVER_CORE) + busyTime_us(LOAD_CORE);
  for (let waited_ms = 0; waited_ms < patience_s * 1000; waited_ms += LOOK_MS) {
    const before_us = busy_us();
    await Bun.sleep(LOOK_MS);
    if (busy_us() - before_us <= LOOK_MS * 1000 * DISTURBED) return;
  }
}

export interface Candidate {
  readonly name: string;
  readonly server: Running;
  readonly load: Omit<Load, "duration_s">;
}

/** One table of the results. */
export interface Group {
  readonly title: string;
  readonly rows: readonly { readonly name: string; readonly samples: readonly Sample[] }[];
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

/**
 * The first undisturbed run, or the least disturbed; one that has a fault is never made again. Just before it
 * the server is warmed up: what an engine has compiled it throws away when it stands still for 20 s, so that who
 * had waited while others were warmed up was 13 % slower.
 */
async function measure({ server, load }: Candidate, plan: Plan): Promise<Sample> {
  const { duration_s, warmup_s, repeats, patience_s } = plan;
  // What the one before has left to the kernel, one that does not sync above all, is not this one's to write.
  Bun.spawnSync(["sync"]);
  await untilQuiet(patience_s);
  await apply(server, { ...load, duration_s: warmup_s });
  let best = await apply(server, { ...load, duration_s });
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    if (best.disturbance <= DISTURBED || best.fault !== null) break;
    await untilQuiet(patience_s);
    const next = await apply(server, { ...load, duration_s });
    if (next.disturbance < best.disturbance || next.fault !== null) best = next;
  }
  return best;
}

export async function interleave(
  title: string,
  candidates: readonly Candidate[],
  plan: Plan,
): Promise<Group> {
  console.log(`\n${title}`);
  const rows = candidates.map(({ name }) => ({ name, samples: [] as Sample[] }));
  for (let round = 0; round < plan.rounds; round += 1) {
    for (const [index, candidate] of candidates.entries()) {
      const sample = await measure(candidate, plan);
      rows[index]?.samples.push(sample);
      console.log(`  ${candidate.name}: ${describe(sample)}`);
    }
  }
  return { title, rows };
}

/** One table of several; rows of one name become one. */
export function joined(title: string, groups: readonly Group[]): Group {
  const rows = new Map<string, Sample[]>();
  for (const { name, samples } of groups.flatMap((group) => group.rows)) {
    rows.set(name, [...(rows.get(name) ?? []), ...samples]);
  }
  return { title, rows: [...rows].map(([name, samples]) => ({ name, samples })) };
}

/** Measures as often as the plan says, each time with servers started anew, and brings it together. */
export async function restarted(
  { starts }: Plan,
  measure: () => Promise<readonly Group[]>,
): Promise<readonly Group[]> {
  const measured: Group[] = [];
  for (let start = 0; start < starts; start += 1) measured.push(...(await measure()));
  return [...Map.groupBy(measured, ({ title }) => title)].map(([title, groups]) =>
    joined(title, groups),
  );
}

function describe(sample: Sample): string {
  const { requests_per_s, p99_ms, cpu_us, disturbance, memory_ns, fault } = sample;
  const rate = `${requests_per_s.toFixed(0)}/s, p99 ${p99_ms.toFixed(2)} ms`;
  const others = `others ${(disturbance * 100).toFixed(0)} %, memory ${memory_ns.toFixed(0)} ns`;
  const cost = `${cpu_us.toFixed(1)} µs CPU, ${others}`;
  return `${rate}, ${cost}${fault === null ? "" : `: ${fault}`}`;
}

/** The samples that count: without fault, and undisturbed if any is. */
export function counted(samples: readonly Sample[]): readonly Sample[] {
  const whole = samples.filter(({ fault }) => fault === null);
  const quiet = whole.filter(({ disturbance }) => disturbance <= DISTURBED);
  return quiet.length === 0 ? whole : quiet;
}

export function rowOf(group: Group, name: string): readonly Sample[] {
  const row = group.rows.find((candidate) => candidate.name === name);
  if (row === undefined) throw new Error(`${group.title} has no ${name}`);
  return counted(row.samples);
}

/** The ratio of the medians, by requests a second and by the CPU time that a request costs. */
export function compare(group: Group, name: string, other: string) {
  const middle = (row: string, field: "requests_per_s" | "cpu_us") =>
    median(rowOf(group, row).map((sample) => sample[field]));
  return {
    ratio: middle(name, "requests_per_s") / middle(other, "requests_per_s"),
    cpu_ratio: middle(other, "cpu_us") / middle(name, "cpu_us"),
  };
}
