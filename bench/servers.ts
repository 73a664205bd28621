/** The programs that are measured, and how each is started. */
import { existsSync } from "node:fs";
import { freePort, type Server, startServer } from "./process.ts";
import { binary, copyOf, dataDirectory, type Seed } from "./seed.ts";

export const node = Bun.which("node") ?? "node";
const bun = process.execPath;
const directory = `${import.meta.dir}/servers`;

const programs = {
  "user-api": { command: [binary, "serve"], env: {} },
  raw: { command: [bun, `${directory}/raw.ts`], env: {} },
  Elysia: { command: [bun, `${directory}/elysia.ts`], env: {} },
  Hono: {
    command: [bun, `${directory}/hono.ts`],
    env: { SQLITE: "bun:sqlite", POSTGRES: "postgres" },
  },
  Fastify: {
    command: [node, `${directory}/fastify.js`],
    env: { SQLITE: "better-sqlite3", POSTGRES: "pg" },
  },
};
type Program = keyof typeof programs;

/** These do less than the service on purpose: they show what its foundation costs. */
const foundations: readonly Program[] = ["raw", "Elysia"];

export interface Variant {
  readonly program: Program;
  /** Path of another version of user-api. */
  readonly executable?: string;
  /** Path or URL. By default a copy of the seed. */
  readonly database?: string;
  /** `full` responds after the write is on disk; `normal` may lose what it has acknowledged. */
  readonly durability?: "full" | "normal";
  readonly log?: boolean;
}

/** A server that is up, with what a client needs. */
export interface Running extends Server {
  readonly token: string;
  readonly users: number;
  /** CPU time of the database server, which shares the core of the server. */
  databaseTimeUs?(): number;
  /** CPU time of a proxy, which shares the core of wrk. */
  proxyTimeUs?(): number;
}

interface User {
  readonly id: number;
}
interface Envelope<Data> {
  readonly data: Data;
  readonly error: unknown;
  readonly meta?: { readonly total: number };
}

/** @throws {Error} if a server does not respond as the service does: only equal work is compared */
async function requireSameResponses({ url, token, users }: Running): Promise<void> {
  function call(path: string, body?: object, given = token): Promise<Response> {
    const headers = { authorization: `Bearer ${given}`, "x-request-id": "same" };
    if (body === undefined) return fetch(`${url}/api/v1/${path}`, { headers });
    return fetch(`${url}/api/v1/${path}`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json", "idempotency-key": url },
      body: JSON.stringify(body),
    });
  }
  const user = await call("users/2");
  const { data, error } = (await user.json()) as Envelope<User | null>;
  const page = (await (await call("users?limit=2&offset=1")).json()) as Envelope<User[]>;
  const order = { user_id: 2, currency: "EUR", items: [{ sku: "a", quantity: 2, unit_price: 3 }] };
  const placed = await call("orders", order);
  const repeated = await call("orders", order);
  const found = {
    user: [user.status, data?.id, error, user.headers.get("etag")],
    request_id: user.headers.get("x-request-id"),
    invalid_token: (await call("users/2", undefined, "x".repeat(40))).status,
    invalid: (await call("users", { email: "nobody" })).status,
    page: [page.data.map(({ id }) => id), Number(page.meta?.total) >= users],
    order: [placed.status, repeated.status, repeated.headers.get("idempotent-replayed")],
    sameOrder: Bun.deepEquals(await placed.json(), await repeated.json()),
  };
  const expected = {
    user: [200, 2, null, '"1"'],
    request_id: "same",
    invalid_token: 401,
    invalid: 400,
    page: [[2, 3], true],
    order: [201, 201, "true"],
    sameOrder: true,
  };
  if (!Bun.deepEquals(found, expected))
    throw new Error(`${url} responds differently: ${JSON.stringify(found)}`);
}

export async function start(seed: Seed, variant: Variant): Promise<Running> {
  const { program, executable, durability = "full", log = true } = variant;
  const { command, env } = programs[program];
  const ours = program === "user-api";
  const port = freePort();
  const database = variant.database ?? copyOf(seed, String(port), ours);
  const settings: Record<string, string> = ours
    ? { DATABASE_URL: database, LOG_LEVEL: log ? "info" : "warn" }
    : { DATABASE: database, LOG: log ? "on" : "off", DURABILITY: durability };
  const server = await startServer({
    command: executable === undefined ? command : [executable, "serve"],
    env: { ...env, ...settings, PORT: String(port) },
    cwd: dataDirectory,
    port,
    readyPath: "/api/v1/users/1",
    token: seed.token,
  });
  const running = { ...server, token: seed.token, users: seed.users };
  try {
    // A seed itself is never written to.
    if (!foundations.includes(program) && database !== seed.path)
      await requireSameResponses(running);
  } catch (error) {
    await server.stop();
    throw error;
  }
  return running;
}

/** Starts one server per variant, and stops all of them at the end. */
export async function withServers<Name extends string, Result>(
  seed: Seed,
  variants: Readonly<Record<Name, Variant>>,
  work: (servers: Readonly<Record<Name, Running>>) => Promise<Result>,
): Promise<Result> {
  await using resources = new AsyncDisposableStack();
  const servers: Partial<Record<Name, Running>> = {};
  for (const name of Object.keys(variants) as Name[]) {
    const server = await start(seed, variants[name]);
    resources.defer(() => server.stop());
    servers[name] = server;
  }
  return await work(servers as Record<Name, Running>);
}

/** @throws {Error} that names what is missing */
export function requireTools(): void {
  if (!existsSync(binary)) throw new Error("dist/user-api is missing: run make build");
  if (!existsSync(`${import.meta.dir}/node_modules`))
    throw new Error("bench/node_modules is missing: run npm ci in bench/");
  for (const tool of ["wrk", "taskset", "node"]) {
    if (Bun.which(tool) === null) throw new Error(`${tool} is missing: install it, e.g. with apt`);
  }
  if (navigator.hardwareConcurrency < 2) throw new Error("at least two cores are required");
}
