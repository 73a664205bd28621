/** Lists as tables grow and as pages lie deeper: this service, and plain `count(*)` and `offset`. */
import { type Running, startOn } from "./contenders.ts";
import { type Candidate, type Group, interleave, type Plan } from "./rounds.ts";
import { copyOf, type Seed } from "./seed.ts";

/** Few, since plain SQL on many rows takes long, and all wait for it. */
const CONNECTIONS = 8;

export const depths_title = "GET /orders?limit=20, 8 connections";
export const sizes_title = "GET /users?limit=20, 8 connections";

export function depthName(offset: number): string {
  return `offset ${offset.toLocaleString("en")}`;
}

export function sizeName(server: "user-api" | "plain SQL", rows: number): string {
  return `${server}, ${rows.toLocaleString("en")} rows`;
}

/** A page may be fast only if its total is right. */
async function requireTotal({ url, token }: Running, path: string, total: number): Promise<void> {
  const response = await fetch(url + path, { headers: { authorization: `Bearer ${token}` } });
  const { meta } = (await response.json()) as { meta: { total: number } };
  if (meta.total !== total) throw new Error(`${path} has a total of ${meta.total}, not ${total}`);
}

/** On one database: the first page against one in the middle. */
export async function measureDepths(seed: Seed, plan: Plan): Promise<Group> {
  const server = await startOn(copyOf(seed, "depth", true), seed, { contender: "user-api" });
  try {
    await requireTotal(server, "/api/v1/orders?limit=20&offset=0", seed.orders);
    const candidates: Candidate[] = [0, seed.orders / 2].map((offset) => ({
      name: depthName(offset),
      server,
      load: { mode: `/api/v1/orders?limit=20&offset=${offset}`, connections: CONNECTIONS },
    }));
    return await interleave(depths_title, candidates, plan);
  } finally {
    await server.stop();
  }
}

/** The first page on small and large databases. */
export async function measureSizes(seeds: readonly Seed[], plan: Plan): Promise<Group> {
  await using resources = new AsyncDisposableStack();
  const candidates: Candidate[] = [];
  for (const contender of ["user-api", "raw"] as const) {
    for (const seed of seeds) {
      // On the seed itself, since it is only read and may be large.
      const server = await startOn(seed.path, seed, { contender });
      resources.defer(() => server.stop());
      const name = sizeName(contender === "raw" ? "plain SQL" : contender, seed.users);
      const mode = "/api/v1/users?limit=20&offset=0";
      await requireTotal(server, mode, seed.users);
      candidates.push({ name, server, load: { mode, connections: CONNECTIONS } });
    }
  }
  return await interleave(sizes_title, candidates, plan);
}
