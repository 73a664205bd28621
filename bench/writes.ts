/** Writes: durable, and beside them what those do who are not. Reads beside writes. */
import { type Running, type Variant, withServers } from "./contenders.ts";
import { apply, type Mode } from "./load.ts";
import { pinned, SERVER_CORE } from "./process.ts";
import { ours } from "./reads.ts";
import { type Candidate, type Group, interleave, type Plan, untilQuiet } from "./rounds.ts";
import { data_folder, type Seed } from "./seed.ts";

/** Connections that read while 64 write. */
const READERS = 4;

const full = { durability: "full" } as const;
const normal = { durability: "normal" } as const;

const baselines: Record<string, Variant> = {
  [ours]: { contender: "user-api" },
  "raw, FULL": { contender: "raw", ...full },
  "raw, NORMAL": { contender: "raw", ...normal },
};
const peers: Record<string, Variant> = {
  "Hono, FULL": { contender: "Hono", ...full },
  "Hono, NORMAL": { contender: "Hono", ...normal },
  "Fastify, FULL": { contender: "Fastify", ...full },
  "Fastify, NORMAL": { contender: "Fastify", ...normal },
  "Express, FULL": { contender: "Express", ...full },
  "Express, NORMAL": { contender: "Express", ...normal },
  "Fastify, newer Node, FULL": { contender: "Fastify, newer Node", ...full },
};

/** Who places orders; Express would say nothing new. */
const placing = [
  ours,
  "Hono, FULL",
  "Hono, NORMAL",
  "Fastify, FULL",
  "Fastify, NORMAL",
  "Fastify, newer Node, FULL",
];

export function titleOf(mode: Mode, connections: number): string {
  const what = mode === "post-user" ? "POST /users" : "POST /orders with 3 items and a new key";
  return `${what}, ${connections} connection${connections === 1 ? "" : "s"}`;
}

/** @param connections those at which users are created; the peers take part at 64 */
export function measureWrites(
  seed: Seed,
  connections: readonly number[],
  plan: Plan,
): Promise<Group[]> {
  return withServers(seed, { ...baselines, ...peers }, async (servers) => {
    const groups: Group[] = [];
    async function measure(
      mode: Mode,
      connections: number,
      names: readonly string[],
      rounds = plan.rounds,
    ) {
      const candidates: Candidate[] = [];
      for (const [name, server] of servers) {
        if (names.includes(name)) candidates.push({ name, server, load: { mode, connections } });
      }
      const title = titleOf(mode, connections);
      groups.push(await interleave(title, candidates, { ...plan, rounds }));
    }
    for (const count of connections) {
      await measure(
        "post-user",
        count,
        Object.keys(count === 64 ? { ...baselines, ...peers } : baselines),
      );
    }
    await measure("post-order", 64, [ours, "Fastify, FULL"], plan.near_rounds);
    await measure("post-order", 64, placing);
    return groups;
  });
}

export interface Beside {
  readonly read_p99_ms: number;
  /** Of raw Bun.serve, while 64 others read: what one thread can do where nothing is written. */
  readonly floor_p99_ms: number;
  readonly fsync_p50_ms: number;
  readonly fsync_p99_ms: number;
  readonly writes_per_s: number;
  readonly reads_per_s: number;
  readonly fault: string | null;
}

async function measureSync(count: number): Promise<{ p50_ms: number; p99_ms: number }> {
  const command = [process.execPath, `${import.meta.dir}/fsync.ts`, data_folder, String(count)];
  const child = Bun.spawn(pinned(SERVER_CORE, command), { stdout: "pipe", stderr: "inherit" });
  return await child.stdout.json();
}

/** How long a read takes while 64 clients write, and how long one sync of this disk does. */
export function measureBeside(seed: Seed, plan: Plan): Promise<Beside[]> {
  const variants = { [ours]: { contender: "user-api" }, raw: { contender: "raw" } } as const;
  return withServers(seed, variants, async (servers) => {
    const server = servers.get(ours) as Running;
    const raw = servers.get("raw") as Running;
    const { starts, rounds, duration_s, patience_s } = plan;
    const found: Beside[] = [];
    for (let round = 0; round < starts * rounds; round += 1) {
      await untilQuiet(patience_s);
      const sync = await measureSync(500 * duration_s);
      const [writes, reads] = await Promise.all([
        apply(server, { mode: "post-user", connections: 64, duration_s }),
        apply(server, { mode: "user", connections: READERS, duration_s }),
      ]);
      await untilQuiet(patience_s);
      const [, floor] = await Promise.all([
        apply(raw, { mode: "user", connections: 64, duration_s }),
        apply(raw, { mode: "user", connections: READERS, duration_s }),
      ]);
      found.push({
        read_p99_ms: reads.p99_ms,
        floor_p99_ms: floor.p99_ms,
        fsync_p50_ms: sync.p50_ms,
        fsync_p99_ms: sync.p99_ms,
        writes_per_s: writes.requests_per_s,
        reads_per_s: reads.requests_per_s,
        fault: writes.fault ?? reads.fault,
      });
      console.log("  reads beside writes:", JSON.stringify(found.at(-1)));
    }
    return found;
  });
}
