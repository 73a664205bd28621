/** Two replicas of the binary on one empty database, and helpers to call them. */

import { againstCitus, againstPostgres, dropDatabase, newDatabase } from "../http/backend.ts";
import { againstBinary, startReplica, type TestResponse, type TestServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { type Outcome, runBinary } from "../support/program.ts";

/** Whether the tests run against the binary and PostgreSQL without Citus. */
export const possible: boolean = againstBinary && againstPostgres && !againstCitus;

export interface Pair extends AsyncDisposable {
  readonly both: readonly [TestServer, TestServer];
  readonly token: string;
  call(...request: Parameters<TestServer["call"]>): Promise<TestResponse>;
}

/** Either of them may have created it. */
async function untilFirstToken(both: Pair["both"]): Promise<string> {
  for (;;) {
    const [token] = /uat_\w+/.exec(both.map(({ output }) => output).join()) ?? [];
    if (token !== undefined) return token;
    await Bun.sleep(5);
  }
}

export async function startPair(database: string): Promise<Pair> {
  const both = await Promise.all([startReplica(database, {}), startReplica(database, {})]);
  const token = await untilFirstToken(both);
  let turn = 0;
  return {
    both,
    token,
    call(method, path, options = {}) {
      turn += 1;
      return (both[turn % 2] ?? both[0]).call(method, path, { token, ...options });
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(both.map((server) => server.stop()));
    },
  };
}

interface World extends AsyncDisposable {
  readonly database: string;
  readonly pair: Pair;
}

/** Starts replicas on a database of their own, on PostgreSQL or Citus. */
export async function startWorld(): Promise<World> {
  await using resources = new AsyncDisposableStack();
  const database = await newDatabase(resources.use(makeDirectory()));
  resources.defer(() => dropDatabase(database));
  const pair = resources.use(await startPair(database));
  const kept = resources.move();
  return { database, pair, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

/** Reads all pages of a list, from the replicas in turn. @throws if the total is not the number of rows */
export async function walk(pair: Pair, path: string): Promise<Record<string, any>[]> {
  const rows: Record<string, any>[] = [];
  for (;;) {
    const query = `${path.includes("?") ? "&" : "?"}limit=333&offset=${rows.length}`;
    const { status, json, text } = await pair.call("GET", path + query);
    if (status !== 200) throw new Error(`${path} returns ${status}: ${text}`);
    rows.push(...json.data);
    if (json.data.length === 333) continue;
    if (json.meta.total === rows.length) return rows;
    throw new Error(`${path} has ${rows.length} rows, and a total of ${json.meta.total}`);
  }
}

export function runCommand(database: string, ...args: string[]): Promise<Outcome> {
  return runBinary(args, { DATABASE_URL: database });
}
