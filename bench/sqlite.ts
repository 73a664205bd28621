/** Reads, lists and writes on SQLite, compared with other servers of the same features. */
import { createUser, firstPage, getUser, placeOrder, type Request } from "./load.ts";
import { type Entry, interleave, type Plan, restarted, titleOf } from "./rounds.ts";
import type { Seed } from "./seed.ts";
import { type Running, start, type Variant, withServers } from "./servers.ts";

export const ours = "user-api";
export const noLog = "user-api, no log lines";
export const ceiling = "raw Bun.serve";

export const readsTitle = titleOf("GET /users/:id", 64);
export const depthsTitle = titleOf("GET /orders?limit=20", 8);
export const sizesTitle = titleOf("GET /users?limit=20", 8);
export const createTitle = titleOf("POST /users", 64);
export const ordersTitle = titleOf("POST /orders with 3 items and a new key", 64);

/** Few, since plain SQL takes up to seconds per response on many rows. */
const LIST_CONNECTIONS = 8;

/** Entries of all servers under the load of 64 clients. */
function entriesOf(servers: Readonly<Record<string, Running>>, request: Request): Entry[] {
  return Object.entries(servers).map(([name, server]) => {
    return { name, server, request, connections: 64 };
  });
}

export function measureReads(seed: Seed, plan: Plan): Promise<void> {
  const variants = {
    [ours]: { program: "user-api" },
    [noLog]: { program: "user-api", log: false },
    [ceiling]: { program: "raw" },
    "Elysia alone, with log lines": { program: "Elysia" },
    "Elysia alone": { program: "Elysia", log: false },
    "Hono on Bun": { program: "Hono" },
    Fastify: { program: "Fastify" },
  } as const satisfies Record<string, Variant>;
  return restarted(plan, () =>
    withServers(seed, variants, (servers) =>
      interleave(readsTitle, entriesOf(servers, getUser), plan),
    ),
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
        const request = { method: "GET", path } as const;
        entries.push({ name, server, request, connections: LIST_CONNECTIONS });
      }
      await interleave(depthsTitle, entries, plan);
    }),
  );
}

export function sizeName(server: "user-api" | "plain SQL", rows: number): string {
  return `${server}, ${rows.toLocaleString("en")} rows`;
}

/**
 * The first page of small and of large tables.
 * @param longS duration of the runs of plain SQL, which takes up to seconds per response
 */
export function measureSizes(seeds: readonly Seed[], longS: number, plan: Plan): Promise<void> {
  async function measure(program: "user-api" | "raw", plan: Plan): Promise<void> {
    await using resources = new AsyncDisposableStack();
    const entries: Entry[] = [];
    for (const seed of seeds) {
      // On the seed itself, since it is only read and may be large.
      const server = await start(seed, { program, database: seed.path });
      resources.defer(() => server.stop());
      await requireTotal(server, firstPage.path, seed.users);
      const name = sizeName(program === "raw" ? "plain SQL" : program, seed.users);
      entries.push({ name, server, request: firstPage, connections: LIST_CONNECTIONS });
    }
    await interleave(sizesTitle, entries, plan);
  }
  return restarted(plan, async () => {
    await measure("user-api", plan);
    await measure("raw", { ...plan, rounds: 1, duration_s: longS });
  });
}

export function measureWrites(seed: Seed, plan: Plan): Promise<void> {
  const variants = {
    [ours]: { program: "user-api" },
    "raw, FULL": { program: "raw" },
    "raw, NORMAL": { program: "raw", durability: "normal" },
    "Hono, FULL": { program: "Hono" },
    "Hono, NORMAL": { program: "Hono", durability: "normal" },
    "Fastify, FULL": { program: "Fastify" },
    "Fastify, NORMAL": { program: "Fastify", durability: "normal" },
  } as const satisfies Record<string, Variant>;
  return restarted(plan, () =>
    withServers(seed, variants, async (servers) => {
      await interleave(createTitle, entriesOf(servers, createUser), plan);
      const orders = entriesOf(servers, placeOrder).filter(({ name }) => !name.startsWith("raw"));
      await interleave(ordersTitle, orders, plan);
    }),
  );
}
