/** Start, memory, size, and the latency of reads while other clients write. */
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdtempSync,
  openSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { newToken } from "../src/domain/token.ts";
import { apply, createUser, getUser, type Load } from "./load.ts";
import { pocketbase, binary as pocketbaseBinary, serve as servePocketBase } from "./pocketbase.ts";
import { freePort, residentMemoryMb, type Server, startServer } from "./process.ts";
import { median, type Plan, untilQuiet } from "./rounds.ts";
import { binary, dataDirectory, type Seed } from "./seed.ts";
import { withServers } from "./servers.ts";
import { ours } from "./sqlite.ts";

/** A server counts as idle after this time without a request. */
const IDLE_MS = 500;
/** Connections that read while 64 write. */
const READERS = 4;
/** A page of SQLite with its header in the log. */
const FRAME = new Uint8Array(4096 + 24).fill(1);
/** Pages after which SQLite starts its log again. */
const FRAMES = 1000;

export interface Footprint {
  readonly server: string;
  readonly start_ms: number;
  readonly idle_mb: number;
  /** Size of the executable in MB. */
  readonly sizeMb: number;
}

/** Memory during one half of the requests. */
export interface Growth {
  /** Number of requests until the end of this half. */
  readonly requests: number;
  /** Median over the half: a single moment depends on the garbage collector. */
  readonly memory_mb: number;
}

export interface ReadsDuringWrites {
  readonly read_p99_ms: number;
  /** The same of raw Bun.serve while 64 others read: what one thread reaches without any write. */
  readonly floor_p99_ms: number;
  readonly fsync_p50_ms: number;
  readonly fsync_p99_ms: number;
  readonly writes_per_s: number;
  readonly reads_per_s: number;
}

/** How a server is started in an empty directory, where it creates its database. */
type Launch = (directory: string) => Promise<Server>;

const launches: Readonly<Record<string, { executable: string; launch: Launch }>> = {
  [ours]: {
    executable: binary,
    launch: (cwd) => {
      const port = freePort();
      // Without a token it would create one and print it.
      const env = { PORT: String(port), API_TOKEN: newToken() };
      const command = [binary, "serve"];
      return startServer({ command, env, cwd, port, readyPath: "/api/v1/health", token: null });
    },
  },
  [pocketbase]: { executable: pocketbaseBinary, launch: servePocketBase },
};

export async function measureFootprints(rounds: number): Promise<Footprint[]> {
  const found: Footprint[] = [];
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, { executable, launch }] of Object.entries(launches)) {
      if (!existsSync(executable)) continue;
      const directory = mkdtempSync(`${dataDirectory}/empty-`);
      const server = await launch(directory);
      await Bun.sleep(IDLE_MS);
      const { start_ms } = server;
      const idleMb = residentMemoryMb(server.pid);
      await server.stop();
      rmSync(directory, { recursive: true });
      const sizeMb = statSync(executable).size / 1e6;
      found.push({ server: name, start_ms, idle_mb: idleMb, sizeMb });
    }
  }
  return found;
}

export function measureGrowth(seed: Seed, requests: number): Promise<Growth[]> {
  return withServers(seed, { "user-api": { program: "user-api" } } as const, async (servers) => {
    const server = servers["user-api"];
    const found: Growth[] = [];
    let count = 0;
    for (const target of [requests / 2, requests]) {
      const samplesMb: number[] = [];
      while (count < target) {
        const sample = await apply(server, { request: getUser, connections: 64, duration_s: 2 });
        if (sample.fault !== null) throw new Error(`cannot read: ${sample.fault}`);
        count += sample.requests;
        samplesMb.push(residentMemoryMb(server.pid));
      }
      found.push({ requests: count, memory_mb: median(samplesMb) });
    }
    return found;
  });
}

/** Overwrites a file page by page, as SQLite does with its write-ahead log, and syncs after each page. */
function measureSync(count: number): { p50_ms: number; p99_ms: number } {
  const path = `${dataDirectory}/fsync`;
  const file = openSync(path, "w");
  for (let frame = 0; frame < FRAMES; frame += 1) writeSync(file, FRAME);
  fsyncSync(file);
  const durationsMs = Array.from({ length: count }, (_, i) => {
    const startedMs = performance.now();
    writeSync(file, FRAME, 0, FRAME.length, (i % FRAMES) * FRAME.length);
    fsyncSync(file);
    return performance.now() - startedMs;
  }).sort((left, right) => left - right);
  closeSync(file);
  rmSync(path);
  const at = (part: number) => durationsMs[Math.floor(part * (count - 1))] ?? Number.NaN;
  return { p50_ms: at(0.5), p99_ms: at(0.99) };
}

/** How long a read takes while 64 clients write, and how long one fsync of this disk takes. */
export function measureReadsDuringWrites(seed: Seed, plan: Plan): Promise<ReadsDuringWrites[]> {
  const variants = { service: { program: "user-api" }, raw: { program: "raw" } } as const;
  return withServers(seed, variants, async ({ service, raw }) => {
    const { duration_s } = plan;
    const reading: Load = { request: getUser, connections: READERS, duration_s };
    const found: ReadsDuringWrites[] = [];
    for (let round = 0; round < plan.starts * plan.rounds; round += 1) {
      await untilQuiet(plan);
      const sync = measureSync(500 * duration_s);
      const [writes, reads] = await Promise.all([
        apply(service, { request: createUser, connections: 64, duration_s }),
        apply(service, reading),
      ]);
      await untilQuiet(plan);
      const [, floor] = await Promise.all([
        apply(raw, { request: getUser, connections: 64, duration_s }),
        apply(raw, reading),
      ]);
      const fault = writes.fault ?? reads.fault ?? floor.fault;
      if (fault !== null) throw new Error(`reads during writes: ${fault}`);
      found.push({
        read_p99_ms: reads.p99_ms,
        floor_p99_ms: floor.p99_ms,
        fsync_p50_ms: sync.p50_ms,
        fsync_p99_ms: sync.p99_ms,
        writes_per_s: writes.requests_per_s,
        reads_per_s: reads.requests_per_s,
      });
    }
    return found;
  });
}
