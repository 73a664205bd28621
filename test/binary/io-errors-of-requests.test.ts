// Makes the first, second, third … system call of each kind on the database files fail while a server handles a request,
// one in each run, and then from that call on, as SQLite's own tests do. The response must be an error that the client may
// retry, the server must recover without a restart each time, and it must keep every acknowledged write.
import { Database } from "bun:sqlite";
import { expect } from "bun:test";
import { newToken } from "../../src/domain/token.ts";
import { newEmail, newUser } from "../http/make.ts";
import { type CallOptions, startServer, type TestServer } from "../http/server.ts";
import { fillLog, untilHealth } from "./disk.ts";
import * as io from "./io-errors.ts";
import { testIf } from "./on-binary.ts";
import { inject, skipTraced } from "./strace.ts";

const test = testIf(!skipTraced);

const TIMEOUT_MS = 30_000;
const RETRY_AFTER_MS = 100;
const USERS = 1_000;
const KILLED = 137;
const CLIENTS = 8;

interface Run {
  readonly server: TestServer;
  readonly acknowledged: io.Acknowledged;
  readonly problems: string[];
  /** The number of runs before this one. */
  readonly count: number;
}

interface Scenario {
  readonly kinds: readonly io.Kind[];
  /** Writes from another connection, so that the server has no page in memory. */
  readonly prepare: (database: string) => void;
  /** @returns whether it has succeeded. It is repeated until then. */
  readonly send: (run: Run) => Promise<boolean>;
}

/** @returns the body; `null` if the client may retry */
async function call({ server, problems }: Run, method: string, path: string, options: CallOptions) {
  const response = await server.call(method, path, options);
  const { status, text, json } = response;
  if (status >= 300 && !io.isUnavailable(response))
    problems.push(`${status} ${text.slice(0, 200)}`);
  return status < 300 ? json : null;
}

/** A write that failed must succeed when it is retried. @param version of the record, if it is made once */
async function change(run: Run, version: number, ...request: [string, string, CallOptions]) {
  const json = await call(run, ...request);
  if (json === null) return false;
  const { data } = json;
  run.acknowledged.records.set(`/${request[1].split("/")[1]}/${data.id}`, data);
  if (data.version !== version) run.problems.push("it was applied twice");
  return true;
}

function rename(database: string, users: number): void {
  using db = new Database(database);
  db.run("pragma busy_timeout = 5000");
  db.run("update users set name = 'In the log' where id <= ?", [users]);
}

async function create({ server, acknowledged, problems }: Run): Promise<boolean> {
  const response = await server.call("POST", "/users", { body: { email: newEmail() } });
  return io.noteCreated(response, acknowledged, problems);
}

const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];
const order = { user_id: 400, currency: "EUR", items };
const writingOnly = { kinds: io.writing, prepare: (database: string) => rename(database, 1) };

/** Not to the log. */
const writesOfDatabase = [io.write, io.writeToFullDisk].map((kind) => ({ ...kind, files: [""] }));

const scenarios: Readonly<Record<string, Scenario>> = {
  "GET of a list that is in the log": {
    kinds: [io.read, io.readNoDisk],
    prepare: (database) => rename(database, USERS),
    async send(run) {
      const json = await call(run, "GET", "/users?limit=20&offset=700", {});
      const total = json?.meta.total ?? run.acknowledged.users;
      const names = new Set(json?.data.map(({ name }: { name: string }) => name) ?? ["In the log"]);
      if (total !== run.acknowledged.users || !Bun.deepEquals([...names], ["In the log"]))
        run.problems.push(`another page: ${JSON.stringify(json).slice(0, 200)}`);
      return json !== null;
    },
  },
  "POST of an order with a key": {
    ...writingOnly,
    send: (run) =>
      change(run, 1, "POST", "/orders", {
        body: order,
        headers: { "idempotency-key": `order-${run.count}` },
      }),
  },
  "PATCH of a user": {
    ...writingOnly,
    send: (run) => change(run, 2, "PATCH", `/users/${2 + run.count}`, { body: { name: "New" } }),
  },
  "a checkpoint": {
    kinds: [io.read, ...writesOfDatabase, io.sync, io.truncate, io.open],
    prepare: fillLog,
    // The first starts the checkpoint, and the second waits for it.
    send: async (run) => (await create(run)) && (await create(run)),
  },
};

/** @returns the calls that failed */
async function attempt(run: Run, { prepare, send }: Scenario, kind: io.Kind, when: string) {
  const { server, acknowledged, problems } = run;
  prepare(server.database);
  const release = await inject(server.pid ?? 0, io.faultOf(kind, when, server.database));
  let isDone = false;
  let injected: string[] = [];
  try {
    isDone = await send(run);
    // Health may be bad for a second afterwards: one run that waits for it is enough.
    if (when === "1+") {
      const health = await server.call("GET", "/health", { token: null });
      if (health.status !== 200 && !io.isUnavailable(health))
        problems.push(`health: ${health.status} ${health.text}`);
    }
  } finally {
    injected = await release();
  }
  const deadlineMs = performance.now() + TIMEOUT_MS;
  while (!isDone && !(await send(run))) {
    if (performance.now() > deadlineMs) throw new Error("still unavailable after the fault");
    await Bun.sleep(RETRY_AFTER_MS);
  }
  await untilHealth(server, 200);
  io.acknowledgeUser(acknowledged, await newUser(server));
  return injected;
}

/** Then kills the server, and compares what is stored. */
async function failEachCallOf(name: string, scenario: Scenario): Promise<void> {
  // With a token, the start is over when the server listens.
  await using server = await startServer({ API_TOKEN: newToken() });
  await io.importUsers(server.database, USERS);
  const acknowledged = io.nothingAcknowledged(USERS);
  let count = 0;
  const work = async (kind: io.Kind, when: string) => {
    const run = { server, acknowledged, problems: [] as string[], count };
    count += 1;
    const injected = await attempt(run, scenario, kind, when).catch((error) => {
      run.problems.push(io.messageOf(error));
      return [];
    });
    return { injected, problems: run.problems };
  };
  // One by one: only one strace can trace a program.
  await io.failEachCall(name, scenario.kinds, work, 1);
  expect(await server.stop("SIGKILL"), server.output.slice(-500)).toBe(KILLED);
  expect(await io.findLost(server.database, acknowledged)).toEqual([]);
}

// What was acknowledged is on disk. A kill cannot show this, because the page cache survives.
test("no write is acknowledged while the log of the database cannot be synced", async () => {
  await using server = await startServer();
  const create = async () =>
    (await server.call("POST", "/users", { body: { email: newEmail() } })).status;
  const createAll = () => Promise.all(Array.from({ length: CLIENTS }, create));
  expect(new Set(await createAll())).toEqual(new Set([201]));
  const paths = [`${server.database}-wal`];
  const fault = { calls: "fsync,fdatasync", error: "EIO", paths };
  const release = await inject(server.pid ?? 0, fault);
  const statuses = [await create(), ...(await createAll())];
  expect(await release()).not.toBeEmpty();
  expect(new Set(statuses)).toEqual(new Set([503]));
});

test.each(Object.entries(scenarios))(
  "%s succeeds or returns 503 when a system call fails, and loses nothing",
  failEachCallOf,
);
