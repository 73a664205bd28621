/**
 * The service on PostgreSQL against itself on SQLite. The server is one of the tests', made of what is
 * installed, on the service's own core: what both take together is what SQLite has for itself.
 */
import { findPrograms, makeInstance } from "../test/postgres/instance.ts";
import { type Running, startOn } from "./contenders.ts";
import type { Mode } from "./load.ts";
import { cpuTime_us, SERVER_CORE } from "./process.ts";
import { type Candidate, type Group, interleave, type Plan } from "./rounds.ts";
import { binary, copyOf, data_folder, type Seed } from "./seed.ts";

export const on_sqlite = "user-api on SQLite";
export const on_postgres = "user-api on PostgreSQL";

const loads: readonly (readonly [what: string, mode: Mode, connections: number])[] = [
  ["GET /users/:id", "user", 1],
  ["GET /users/:id", "user", 64],
  ["GET /users?limit=20", "/api/v1/users?limit=20&offset=0", 8],
  ["POST /users", "post-user", 1],
  ["POST /users", "post-user", 64],
  ["POST /orders with 3 items and a new key", "post-order", 64],
];

function titleOf([what, , connections]: (typeof loads)[number]): string {
  return `On PostgreSQL: ${what}, ${connections} connection${connections === 1 ? "" : "s"}`;
}

export const postgres_titles: readonly string[] = loads.map(titleOf);

function run(...words: readonly string[]): string {
  const { success, stdout, stderr } = Bun.spawnSync([binary, ...words]);
  if (!success) throw new Error(`user-api ${words.join(" ")}: ${stderr}`);
  return stdout.toString().trim();
}

/** Brings the records of a seed to another database. @returns a token for it */
function move(seed: Seed, database_url: string): string {
  const token = run("token", "create", "bench", "--database-url", database_url);
  for (const table of ["users", "orders"]) {
    const file = `${data_folder}/run-${table}.ndjson`;
    run("export", table, "--output", file, "--database-url", seed.path);
    run("import", table, file, "--database-url", database_url);
  }
  return token;
}

/** @returns the version of the server's programs; `null` when there are none */
export function describePostgres(): string | null {
  const programs = findPrograms();
  if (programs === null) return null;
  const told = Bun.spawnSync([`${programs}/postgres`, "--version"]).stdout.toString();
  return told.replace("postgres (PostgreSQL)", "").trim();
}

/** Its connections, which are processes, last as long as the service runs. */
function sumOf(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + cpuTime_us(pid), 0);
}

/** Nothing, and a line that says so, where there is no PostgreSQL. */
export async function measurePostgres(seed: Seed, plan: Plan): Promise<Group[]> {
  const programs = findPrograms();
  if (programs === null) {
    console.log("\nPostgreSQL is not measured: there is no initdb here");
    return [];
  }
  await using resources = new AsyncDisposableStack();
  const instance = resources.use(await makeInstance(programs, {}));
  await instance.start();
  // Those that it starts from now on are where it is.
  for (const pid of instance.processes()) {
    Bun.spawnSync(["taskset", "-c", "-p", String(SERVER_CORE), String(pid)]);
  }
  const token = move(seed, instance.url);
  const service = await startOn(instance.url, { ...seed, token }, { contender: "user-api" });
  resources.defer(() => service.stop());
  const sqlite = await startOn(copyOf(seed, "sqlite", true), seed, { contender: "user-api" });
  resources.defer(() => sqlite.stop());
  const postgres: Running = { ...service, database_us: () => sumOf(instance.processes()) };
  const groups: Group[] = [];
  for (const load of loads) {
    const [, mode, connections] = load;
    const candidates: Candidate[] = [
      { name: on_sqlite, server: sqlite, load: { mode, connections } },
      { name: on_postgres, server: postgres, load: { mode, connections } },
    ];
    groups.push(await interleave(titleOf(load), candidates, plan));
  }
  return groups;
}
