/**
 * The service on PostgreSQL, compared with itself on SQLite and with other servers on the same PostgreSQL. The
 * database server shares the core of the measured server, which SQLite has for itself.
 */
import { SQL } from "bun";
import {
  findPrograms,
  type Instance,
  makeInstance,
  processesIn,
} from "../test/postgres/instance.ts";
import { createUser, firstPage, getUser, placeOrder, type Request, updateUser } from "./load.ts";
import {
  cpuTimeUs,
  freePort,
  LOAD_CORE,
  output,
  pinned,
  SERVER_CORE,
  sumOfCpuTimeUs,
} from "./process.ts";
import { type Entry, interleave, type Plan, restarted, titleOf } from "./rounds.ts";
import { binary, createToken, fill, type Seed } from "./seed.ts";
import { type Running, type Variant, withServers } from "./servers.ts";

export const onSqlite = "user-api on SQLite";
export const onPostgres = "user-api on PostgreSQL";
export const hono = "Hono + postgres.js";
export const fastify = "Fastify + pg";

interface PostgresLoad {
  readonly what: string;
  readonly request: Request;
  readonly connections: number;
}

const get = { what: "GET /users/:id", request: getUser };
const list = { what: "GET /users?limit=20", request: firstPage };
const create = { what: "POST /users", request: createUser };
const order = { what: "POST /orders with 3 items and a new key", request: placeOrder };

export const loads = {
  get: { ...get, connections: 64 },
  list: { ...list, connections: 8 },
  create: { ...create, connections: 64 },
  order: { ...order, connections: 64 },
};
/** Loads of one client, which only the service gets. */
export const loneLoads = {
  get: { ...get, connections: 1 },
  create: { ...create, connections: 1 },
  order: { ...order, connections: 1 },
};

export function nearTitle({ what, connections }: PostgresLoad): string {
  return `On PostgreSQL: ${titleOf(what, connections)}`;
}
export function farTitle({ what, connections }: PostgresLoad): string {
  return `On PostgreSQL 1 ms away: ${titleOf(what, connections)}`;
}
export const updateTitle = `On PostgreSQL: ${titleOf("PATCH /users/:id", 64)}`;
export const deepTitle = `On PostgreSQL: ${titleOf("GET /users?limit=20&after", 8)}`;

/** @returns the version of the server; `null` if PostgreSQL is not installed */
export function describePostgres(): string | null {
  const programs = findPrograms();
  if (programs === null) return null;
  return output(`${programs}/postgres`, "--version").replace("postgres (PostgreSQL)", "").trim();
}

/** Starts PostgreSQL on the core of the measured servers. Its defaults have `fsync` on. */
async function startPostgres(): Promise<Instance> {
  const programs = findPrograms();
  if (programs === null) throw new Error("PostgreSQL is not installed");
  const instance = makeInstance(programs, {});
  await instance.start();
  // The server itself is the first: what it starts later inherits the core. A process of a connection that has just
  // been closed may be gone.
  for (const pid of processesIn(instance.data)) {
    Bun.spawnSync(["taskset", "-c", "-p", String(SERVER_CORE), String(pid)]);
  }
  return instance;
}

async function run(url: string, ...statements: string[]): Promise<void> {
  await using sql = new SQL(url, { max: 1 });
  for (const statement of statements) await sql.unsafe(statement);
}

/** Creates a database that has users only. */
async function fillDeep(instanceUrl: string, users: number): Promise<Seed> {
  await run(instanceUrl, "create database deep");
  const path = new URL("/deep", instanceUrl).href;
  fill(path, users, 0);
  await run(path, "vacuum analyze", "checkpoint");
  return { path, token: createToken(path), users, orders: 0 };
}

/** Starts a proxy that holds back everything that is sent to the database for 1 ms. It shares the core of wrk. */
async function startProxy(databaseUrl: string) {
  const port = freePort();
  const url = new URL(databaseUrl);
  const script = `${import.meta.dir}/servers/delay.ts`;
  const command = pinned(LOAD_CORE, [process.execPath, script, String(port), url.port, "1"]);
  const child = Bun.spawn(command, { stdout: "pipe", stderr: "inherit" });
  // It prints a line as soon as it listens.
  await child.stdout.getReader().read();
  url.port = String(port);
  return {
    url: url.href,
    proxyTimeUs: () => cpuTimeUs(child.pid),
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.exited;
    },
  };
}

/** One table per load. Under a load of one client, only the service is measured. */
function measureLoads(
  seed: Seed,
  variants: Readonly<Record<string, Variant>>,
  tables: readonly (PostgresLoad & { readonly title: string })[],
  times: Pick<Running, "databaseTimeUs" | "proxyTimeUs">,
  plan: Plan,
): Promise<void> {
  return restarted(plan, () =>
    withServers(seed, variants, async (servers) => {
      for (const { title, request, connections } of tables) {
        const lone = connections === 1;
        const entries: Entry[] = [];
        for (const [name, running] of Object.entries(servers)) {
          if (lone && !name.startsWith("user-api")) continue;
          const server = name === onSqlite ? running : { ...running, ...times };
          entries.push({ name, server, request, connections });
        }
        await interleave(title, entries, plan);
      }
    }),
  );
}

/** One table of the service alone, with one row per request. */
async function measureAlone(
  { title, connections }: { readonly title: string; readonly connections: number },
  requests: Readonly<Record<string, Request>>,
  seed: Seed,
  databaseTimeUs: () => number,
  plan: Plan,
): Promise<void> {
  const variants = { service: { program: "user-api", database: seed.path } } as const;
  await restarted(plan, () =>
    withServers(seed, variants, async ({ service }) => {
      const server = { ...service, databaseTimeUs };
      const entries = Object.entries(requests).map(([name, request]): Entry => {
        return { name, server, request, connections };
      });
      await interleave(title, entries, plan);
    }),
  );
}

/** Code that runs once per batch is compiled later than code of each request: without it, the compilers are measured. */
const WARMUPS = 3;

/** @param depth number of users before the deep page */
export async function measurePostgres(seed: Seed, depth: number, given: Plan): Promise<void> {
  const plan = { ...given, warmupS: WARMUPS * given.warmupS };
  await using instance = await startPostgres();
  output(binary, "copy", "--to", instance.url, "--database-url", seed.path);
  await run(instance.url, "vacuum analyze", "checkpoint");
  const databaseTimeUs = () => sumOfCpuTimeUs(processesIn(instance.data));
  const variantsOn = (database: string) =>
    ({
      [onPostgres]: { program: "user-api", database },
      [hono]: { program: "Hono", database },
      [fastify]: { program: "Fastify", database },
    }) as const;

  const near = { [onSqlite]: { program: "user-api" }, ...variantsOn(instance.url) } as const;
  const nearLoads = [...Object.values(loads), ...Object.values(loneLoads)];
  const nearTables = nearLoads.map((load) => ({ ...load, title: nearTitle(load) }));
  await measureLoads(seed, near, nearTables, { databaseTimeUs }, plan);
  const updates = { "without a key": updateUser, "with a key": { ...updateUser, keyed: true } };
  const onInstance = { ...seed, path: instance.url };
  const updating = { title: updateTitle, connections: 64 };
  await measureAlone(updating, updates, onInstance, databaseTimeUs, plan);

  await using proxy = await startProxy(instance.url);
  const farTables = Object.values(loads).map((load) => ({ ...load, title: farTitle(load) }));
  const times = { databaseTimeUs, proxyTimeUs: proxy.proxyTimeUs };
  // One start: the delay matters more than what differs between two starts.
  await measureLoads(seed, variantsOn(proxy.url), farTables, times, { ...plan, starts: 1 });
  const deep = await fillDeep(instance.url, depth + depth / 10);
  const deepPage = { method: "GET", path: `/api/v1/users?limit=20&after=${depth}` } as const;
  const pages = { "first page": firstPage, "deep after": deepPage };
  await measureAlone({ title: deepTitle, connections: 8 }, pages, deep, databaseTimeUs, plan);
}
