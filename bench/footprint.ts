/** How fast it starts, and how much memory it takes. */
import { mkdtempSync, rmSync } from "node:fs";
import { type Contender, contenders, start } from "./contenders.ts";
import { apply } from "./load.ts";
import { freePort, residentMemory_mb, startServer } from "./process.ts";
import { median } from "./rounds.ts";
import { binary, data_folder, type Seed } from "./seed.ts";

/** After this long without a request a server counts as idle. */
const IDLE_MS = 500;

export interface Footprint {
  readonly name: string;
  readonly start_ms: number;
  readonly idle_mb: number;
}

/** One half of the requests. */
export interface Growth {
  /** So far. */
  readonly requests: number;
  /** Median of all moments: at one moment it says more of the collector than of the service. */
  readonly memory_mb: number;
}

/** From nothing: an empty folder, in which the database is made, too. */
async function startCold(): Promise<Omit<Footprint, "name">> {
  const folder = mkdtempSync(`${data_folder}/cold-`);
  const port = freePort();
  const server = await startServer({
    command: [binary, "serve"],
    env: { PORT: String(port) },
    cwd: folder,
    port,
    ready_path: "/api/v1/health",
    token: null,
  });
  await Bun.sleep(IDLE_MS);
  const idle_mb = residentMemory_mb(server.pid);
  await server.stop();
  rmSync(folder, { recursive: true });
  return { start_ms: server.start_ms, idle_mb };
}

async function startWarm(seed: Seed, contender: Contender): Promise<Omit<Footprint, "name">> {
  const server = await start(seed, { contender });
  await Bun.sleep(IDLE_MS);
  const idle_mb = residentMemory_mb(server.pid);
  await server.stop();
  return { start_ms: server.start_ms, idle_mb };
}

export const cold = "user-api, empty folder";

export async function measureFootprints(seed: Seed, rounds: number): Promise<Footprint[]> {
  const found = new Map<string, Omit<Footprint, "name">[]>();
  for (let round = 0; round < rounds; round += 1) {
    found.set(cold, [...(found.get(cold) ?? []), await startCold()]);
    for (const contender of Object.keys(contenders) as Contender[]) {
      found.set(contender, [...(found.get(contender) ?? []), await startWarm(seed, contender)]);
    }
  }
  return [...found].map(([name, samples]) => {
    const start_ms = median(samples.map((sample) => sample.start_ms));
    const idle_mb = median(samples.map((sample) => sample.idle_mb));
    console.log(`  ${name}: ${start_ms.toFixed(0)} ms to the first 200, ${idle_mb.toFixed(0)} MB`);
    return { name, start_ms, idle_mb };
  });
}

/** Memory of this service in the first half of the requests and in the second. */
export async function measureGrowth(seed: Seed, requests: number): Promise<Growth[]> {
  const server = await start(seed, { contender: "user-api" });
  const found: Growth[] = [];
  let count = 0;
  try {
    for (const target of [requests / 2, requests]) {
      const samples_mb: number[] = [];
      while (count < target) {
        const load = { mode: "user", connections: 64, duration_s: 2 } as const;
        const sample = await apply(server, load);
        if (sample.fault !== null) throw new Error(`reading failed: ${sample.fault}`);
        count += sample.requests;
        samples_mb.push(residentMemory_mb(server.pid));
      }
      found.push({ requests: count, memory_mb: median(samples_mb) });
    }
  } finally {
    await server.stop();
  }
  console.log("  memory:", JSON.stringify(found));
  return found;
}
