/** Two replicas of the binary on one empty database, and helpers to call them. */
import { expect } from "bun:test";
import { againstCitus, againstPostgres, dropDatabase, newDatabase } from "../http/backend.ts";
import { againstBinary, createToken, startReplica, type TestServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { type Outcome, runBinary } from "../support/program.ts";

/** Whether the tests run against the binary and PostgreSQL without Citus. */
export const possible: boolean = againstBinary && againstPostgres && !againstCitus;

export type Pair = Awaited<ReturnType<typeof startPair>>;

/** Starts replicas on a separate database, on PostgreSQL or Citus. */
export async function startPair() {
  await using resources = new AsyncDisposableStack();
  const database = await newDatabase(resources.use(makeDirectory()));
  resources.defer(() => dropDatabase(database));
  const token = await createToken(database, "pair", "write");
  const start = () => startReplica(database, {}, { writeToken: token, readToken: token });
  const both = await Promise.all([start(), start()]);
  for (const server of both) resources.use(server);
  let turn = 0;
  const kept = resources.move();
  return {
    database,
    call(...call: Parameters<TestServer["call"]>) {
      turn += 1;
      return (both[turn % 2] ?? both[0]).call(...call);
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

export async function createUser({ call }: Pair, email: string): Promise<any> {
  const { status, json, text } = await call("POST", "/users", { body: { email } });
  expect(status, text).toBe(201);
  return json.data;
}

export function runCommand(database: string, ...args: string[]): Promise<Outcome> {
  return runBinary(args, { DATABASE_URL: database });
}
