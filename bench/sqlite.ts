/** Reads, lists and writes on SQLite, compared with other servers of the same features. */
import { create_user, first_page, get_user, place_order, type Request } from "./load.ts";
import { type Entry, fewerRounds, interleave, type Plan, restarted, titleOf } from "./rounds.ts";
import { createTokens, type Seed } from "./seed.ts";
import { type Running, start, type Variant, withServers } from "./servers.ts";

export const ours = "user-api";
export const no_log = "user-api, no log lines";
export const many_tokens = "user-api, 64 tokens";
export const ceiling = "raw Bun.serve";

export const reads_title = titleOf("GET /users/:id", 64);
export const depths_title = titleOf("GET /orders?limit=20", 8);
export const sizes_title = titleOf("GET /users?limit=20", 8);
export const createTitle = (connections: number) => titleOf("POST /users", connections);
export const orders_title = titleOf("POST /orders with 3 items and a new key", 64);

/** As many as there are connections: the service looks up each token once per turn of its event loop. */
const TOKENS = 64;
/** Few, since plain SQL takes up to seconds per response on many rows. */
const LIST_CONNECTIONS = 8;

/** Entries of all servers, or of those that are named, under one load. */
function entriesOf<Name extends string>(
  servers: Readonly<Record<Name, Running>>,
  request: Request,
  connections: number,
  names = Object.keys(servers) as Name[],
): Entry[] {
  return names.map((name) => ({ name, server: servers[name], request, connections }));
}

export function measureReads(seed: Seed, plan: Plan): Promise<void> {
  const tokens = createTokens(seed, TOKENS);
  const variants = {
    [ours]: { program: "user-api" },
    [no_log]: { program: "user-api", log: false },
    [ceiling]: { program: "raw" },
    "Elysia alone, with log lines": { program: "Elysia" },
    "Elysia alone": { program: "Elysia", log: false },
    "Hono on Bun": { program: "Hono" },
    Fastify: { program: "Fastify" },
    Express: { program: "Express" },
    "Fastify, newer Node": { program: "Fastify, newer Node" },
    "Express, newer Node": { program: "Express, newer Node" },
  } as const satisfies Record<string, Variant>;
  return restarted(plan, () =>
    withServers(seed, variants, async (servers) => {
      const entries = entriesOf(servers, get_user, 64);
      const server = { ...servers[ours], token: tokens.join(",") };
      entries.splice(3, 0, { name: many_tokens, server, request: get_user, connections: 64 });
      // In two parts, so that no server is idle for long.
      const near = { ...plan, rounds: plan.near_rounds };
      await interleave(reads_title, entries.slice(0, 6), near);
      await interleave(reads_title, [entries[0] as Entry, ...entries.slice(6)], plan);
    }),
  );
}

/** A page may be fast only if its total is right. */
async function requireTotal({ url, token }: Running, path: string, total: number): Promise<void> {
  const response = await fetch(url + path, { headers: { authorization: `Bearer ${token}` } });
  const { meta } = (await response.json()) as { meta: { total: number } };
  if (meta.total !== total) throw new Error(`${path} has a total of ${meta.total}, not ${total}`);
}

/** The first page of one table, and pages in its middle by `offset` and by `after`. */
export function measureDepths(seed: Seed, plan: Plan): Promise<void> {
  const middle = seed.orders / 2;
  const queries = {
    "first page": "offset=0",
    "deep offset": `offset=${middle}`,
    "deep after": `after=${middle}`,
  };
  return restarted(plan, () =>
    withServers(seed, { [ours]: { program: "user-api" } } as const, async (servers) => {
      const server = servers[ours];
      const entries: Entry[] = [];
      for (const [name, query] of Object.entries(queries)) {
        const path = `/api/v1/orders?limit=20&${query}`;
        // The check for equal responses has placed one order.
        await requireTotal(server, path, seed.orders + 1);
        entries.push({
          name,
          server,
          request: { method: "GET", path },
          connections: LIST_CONNECTIONS,
        });
      }
      await interleave(depths_title, entries, plan);
    }),
  );
}

export function sizeName(server: "user-api" | "plain SQL", rows: number): string {
  return `${server}, ${rows.toLocaleString("en")} rows`;
}

/**
 * The first page of small and of large tables.
 * @param long_s duration of the runs of plain SQL, which takes up to seconds per response
 */
export function measureSizes(seeds: readonly Seed[], long_s: number, plan: Plan): Promise<void> {
  async function measure(program: "user-api" | "raw", plan: Plan): Promise<void> {
    await using resources = new AsyncDisposableStack();
    const entries: Entry[] = [];
    for (const seed of seeds) {
      // On the seed itself, since it is only read and may be large.
      const server = await start(seed, { program, database: seed.path });
      resources.defer(() => server.stop());
      await requireTotal(server, first_page.path, seed.users);
      const name = sizeName(program === "raw" ? "plain SQL" : program, seed.users);
      entries.push({ name, server, request: first_page, connections: LIST_CONNECTIONS });
    }
    await interleave(sizes_title, entries, plan);
  }
  return restarted(plan, async () => {
    await measure("user-api", plan);
    await measure("raw", { ...plan, rounds: 1, duration_s: long_s });
  });
}

/** @param connections numbers of connections that create users; all servers take part only at 64 */
export function measureWrites(
  seed: Seed,
  connections: readonly number[],
  plan: Plan,
): Promise<void> {
  const variants = {
    [ours]: { program: "user-api" },
    "raw, FULL": { program: "raw" },
    "raw, NORMAL": { program: "raw", durability: "normal" },
    "Hono, FULL": { program: "Hono" },
    "Hono, NORMAL": { program: "Hono", durability: "normal" },
    "Fastify, FULL": { program: "Fastify" },
    "Fastify, NORMAL": { program: "Fastify", durability: "normal" },
    "Fastify, newer Node, FULL": { program: "Fastify, newer Node" },
    "Express, FULL": { program: "Express" },
    "Express, NORMAL": { program: "Express", durability: "normal" },
  } as const satisfies Record<string, Variant>;
  const names = Object.keys(variants) as (keyof typeof variants)[];
  // raw has no orders, and Express would show nothing new.
  const placing = names.filter((name) => !/^(?:raw|Express)/.test(name));
  return restarted(plan, () =>
    withServers(seed, variants, async (servers) => {
      for (const count of connections) {
        const all = count === 64;
        const entries = entriesOf(servers, create_user, count, all ? names : names.slice(0, 3));
        await interleave(createTitle(count), entries, all ? plan : fewerRounds(plan));
      }
      const entries = entriesOf(servers, place_order, 64, placing);
      await interleave(orders_title, entries, plan);
    }),
  );
}
