/**
 * The CPU time per request of this version and of the one that `bench/baseline` names. Both servers run at the same time
 * on one core, each with its own wrk, and a ratio is that of one such round: one after the other, two starts of the same
 * program differed by up to 26 %.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { apply, createUser, type Load, placeOrder, updateUser } from "./load.ts";
import { output } from "./process.ts";
import { type Plan, restarted } from "./rounds.ts";
import { binary, seedBy } from "./seed.ts";
import { type Running, start } from "./servers.ts";

/** More orders than the largest page has, and 20 per user. */
const USERS = 1_000;
const ORDERS = 20_000;

function read(query: string, connections: number): Omit<Load, "duration_s"> {
  return { request: { method: "GET", path: `/api/v1/${query}` }, connections };
}

const item = { sku: "tea-01", name: "Green tea, 250 g", quantity: 1, unit_price: 1999 };
const items = JSON.stringify(Array.from({ length: 100 }, () => item));
const body = `{"user_id":{id},"currency":"EUR","items":${items}}`;

/** In this order, because writes add to what lists read. */
const loads = {
  "GET user": read("users/{id}", 64),
  "GET order": read("orders/{id}", 64),
  "list of 20 users": read("users?limit=20", 8),
  "list of 20 orders": read("orders?limit=20", 8),
  "list of 1,000 orders": read("orders?limit=1000", 8),
  "list of 20 orders of a user": read("orders?limit=20&user_id={id}", 8),
  "PATCH user": { request: updateUser, connections: 64 },
  "POST user": { request: createUser, connections: 64 },
  "POST order": { request: { ...placeOrder, keyed: false }, connections: 64 },
  "POST order with a key": { request: placeOrder, connections: 64 },
  "POST order of 100 items with a key": { request: { ...placeOrder, body }, connections: 64 },
};

/** One round of a load: CPU time per request. */
export interface Pair {
  readonly load: string;
  readonly beforeUs: number;
  readonly nowUs: number;
  readonly ratio: number;
}

/** @returns a tag or a commit */
export function readBaseline(): string {
  return readFileSync(`${import.meta.dir}/baseline`, "utf8").trim();
}

/** @returns the path of the program of a tag or a commit, which is built once */
function build(name: string): string {
  const root = `${import.meta.dir}/..`;
  const source = `${root}/.bench/source`;
  try {
    const commit = output("git", "-C", root, "rev-parse", "--verify", `${name}^{commit}`);
    const executable = `${root}/.bench/user-api-${commit}`;
    if (existsSync(executable)) return executable;
    console.log(`\nBuilding ${name}`);
    rmSync(source, { recursive: true, force: true });
    mkdirSync(source, { recursive: true });
    output("git", "-C", root, "archive", `--output=${source}/all.tar`, commit);
    output("tar", "-xf", `${source}/all.tar`, "-C", source);
    // With the packages and the scripts of that commit, whose directory is no repository.
    output("make", "-C", source, "build", `COMMIT=${commit.slice(0, 12)}`);
    renameSync(`${source}/dist/user-api`, executable);
    rmSync(source, { recursive: true });
    return executable;
  } catch (error) {
    throw new Error(`${name} is not in this clone, or cannot be built`, { cause: error });
  }
}

export async function measurePairs(plan: Plan): Promise<Pair[]> {
  const pairs: Pair[] = [];
  // Each fills its own database: the schema may differ.
  const versions = Object.entries({ before: build(readBaseline()), now: binary }).map(
    ([name, executable]) => ({ executable, seed: seedBy(executable, name, USERS, ORDERS) }),
  );
  await restarted(plan, async () => {
    await using resources = new AsyncDisposableStack();
    const servers: Running[] = [];
    for (const { executable, seed } of versions) {
      const server = await start(seed, { program: "user-api", executable });
      resources.defer(() => server.stop());
      servers.push(server);
    }
    for (const [load, request] of Object.entries(loads)) {
      for (let round = 0; round <= plan.rounds; round += 1) {
        const one: Load = { ...request, duration_s: plan.duration_s };
        const samples = await Promise.all(servers.map((server) => apply(server, one)));
        const fault = samples.find((sample) => sample.fault !== null)?.fault;
        if (fault !== undefined) throw new Error(`${load}: ${fault}`);
        // The engines compile during the first.
        if (round === 0) continue;
        const [beforeUs = Number.NaN, nowUs = Number.NaN] = samples.map(({ cpu_us }) => cpu_us);
        const ratio = nowUs / beforeUs;
        pairs.push({ load, beforeUs, nowUs, ratio });
        console.log(`  ${load}: ${nowUs.toFixed(1)} µs, ratio ${ratio.toFixed(3)}`);
      }
    }
  });
  return pairs;
}
