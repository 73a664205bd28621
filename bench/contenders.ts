/** Who is measured, and how each is started on a copy of a seed. */
import { existsSync } from "node:fs";
import { freePort, type Server, startServer } from "./process.ts";
import { binary, copyOf, data_folder, type Seed } from "./seed.ts";

/** `full` answers when it is on disk; `normal` can lose what it answered. */
export type Durability = "full" | "normal";

const bun = process.execPath;
/** The machine's own Node, and the current one, which npm brings. */
export const old_node = Bun.which("node") ?? "node";
export const new_node = `${import.meta.dir}/node_modules/node-linux-${process.arch}/bin/node`;

const servers = `${import.meta.dir}/servers`;
const old_sqlite = { SQLITE: "better-sqlite3" };
const new_sqlite = { SQLITE: "better-sqlite3-13" };

/** By the name that the results have. */
export const contenders = {
  "user-api": { command: [binary, "serve"], env: {} },
  raw: { command: [bun, `${servers}/raw.ts`], env: {} },
  Elysia: { command: [bun, `${servers}/elysia.ts`], env: {} },
  Hono: { command: [bun, `${servers}/hono.ts`], env: {} },
  Fastify: { command: [old_node, `${servers}/fastify.js`], env: old_sqlite },
  Express: { command: [old_node, `${servers}/express.js`], env: old_sqlite },
  "Fastify, newer Node": { command: [new_node, `${servers}/fastify.js`], env: new_sqlite },
  "Express, newer Node": { command: [new_node, `${servers}/express.js`], env: new_sqlite },
};
export type Contender = keyof typeof contenders;

export interface Variant {
  readonly contender: Contender;
  readonly durability?: Durability;
  readonly log?: boolean;
}

/** A server that is up, with what a client needs of it. */
export interface Running extends Server {
  readonly token: string;
  readonly users: number;
  /** CPU time that a database server has used for it. */
  database_us?(): number;
}

/** Starts one on this database itself; `path` must not be in use. */
export async function startOn(path: string, seed: Seed, variant: Variant): Promise<Running> {
  const { contender, durability = "full", log = true } = variant;
  const port = freePort();
  const ours = contender === "user-api";
  const { command, env } = contenders[contender];
  const settings: Record<string, string> = ours
    ? { DATABASE_URL: path, LOG_LEVEL: log ? "info" : "warn" }
    : { DATABASE: path, LOG: log ? "on" : "off", DURABILITY: durability };
  const server = await startServer({
    command,
    env: { ...env, ...settings, PORT: String(port) },
    cwd: data_folder,
    port,
    ready_path: "/api/v1/users/1",
    token: seed.token,
  });
  return { ...server, token: seed.token, users: seed.users };
}

/** These may do less than the service: they show what the ground it stands on costs. */
const floors: readonly Contender[] = ["raw", "Elysia"];

/** What is compared must be the same: all others answer as the service does. */
async function requireAlike(server: Running): Promise<void> {
  const url = `${server.url}/api/v1/users/2`;
  const authorization = `Bearer ${server.token}`;
  const response = await fetch(url, { headers: { authorization, "x-request-id": "alike" } });
  const { data, error } = (await response.json()) as { data: { id: number }; error: unknown };
  const { headers } = response;
  const stranger = await fetch(url, { headers: { authorization: `Bearer ${"x".repeat(40)}` } });
  const found = [
    data?.id,
    error,
    headers.get("x-request-id"),
    headers.get("etag"),
    stranger.status,
  ];
  if (JSON.stringify(found) === JSON.stringify([2, null, "alike", '"1"', 401])) return;
  throw new Error(`${url} answers otherwise: ${JSON.stringify(found)}`);
}

let copies = 0;

/** Starts one on a copy of its own. */
export async function start(seed: Seed, variant: Variant): Promise<Running> {
  copies += 1;
  const path = copyOf(seed, String(copies), variant.contender === "user-api");
  const server = await startOn(path, seed, variant);
  try {
    if (!floors.includes(variant.contender)) await requireAlike(server);
  } catch (error) {
    await server.stop();
    throw error;
  }
  return server;
}

/** Starts one of each, and stops them whatever happens. */
export async function withServers<Result>(
  seed: Seed,
  variants: Record<string, Variant>,
  work: (servers: ReadonlyMap<string, Running>) => Promise<Result>,
): Promise<Result> {
  await using resources = new AsyncDisposableStack();
  const servers = new Map<string, Running>();
  for (const [name, variant] of Object.entries(variants)) {
    const server = await start(seed, variant);
    resources.defer(() => server.stop());
    servers.set(name, server);
  }
  return await work(servers);
}

/** Fails early, and says what is missing. */
export function requireAll(): void {
  if (!existsSync(binary)) throw new Error("dist/user-api is missing: make build");
  if (!existsSync(new_node)) throw new Error("bench/node_modules is missing: npm ci in bench/");
  for (const tool of ["wrk", "taskset", "node"]) {
    if (Bun.which(tool) === null) throw new Error(`${tool} is missing: install it, e.g. with apt`);
  }
  if (navigator.hardwareConcurrency < 2) throw new Error("two cores are needed at least");
}
