/** Two replicas of the binary on one empty database, and helpers to call them. */
import { expect } from "bun:test";
import { againstCitus, againstPostgres, dropDatabase, newDatabase } from "../http/backend.ts";
import {
  againstBinary,
  createToken,
  startReplica,
  type TestResponse,
  type TestServer,
} from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { type Outcome, runBinary } from "../support/program.ts";

/** Whether the tests run against the binary and PostgreSQL without Citus. */
export const possible: boolean = againstBinary && againstPostgres && !againstCitus;

type Pair = Awaited<ReturnType<typeof startPair>>;

async function startPair(database: string) {
  const token = await createToken(database, "pair", "write");
  const start = () => startReplica(database, {}, { writeToken: token, readToken: token });
  const both = await Promise.all([start(), start()]);
  let turn = 0;
  return {
    both,
    call(...call: Parameters<TestServer["call"]>): Promise<TestResponse> {
      turn += 1;
      return (both[turn % 2] ?? both[0]).call(...call);
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(both.map((server) => server.stop()));
    },
  };
}

export async function createUser({ call }: Pair, email: string): Promise<any> {
  const { status, json, text } = await call("POST", "/users", { body: { email } });
  expect(status, text).toBe(201);
  return json.data;
}

/** Starts replicas on a separate database, on PostgreSQL or Citus. */
export async function startWorld() {
  await using resources = new AsyncDisposableStack();
  const database = await newDatabase(resources.use(makeDirectory()));
  resources.defer(() => dropDatabase(database));
  const pair = resources.use(await startPair(database));
  const kept = resources.move();
  return { database, pair, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

export function runCommand(database: string, ...args: string[]): Promise<Outcome> {
  return runBinary(args, { DATABASE_URL: database });
}
