// Makes the first, second, third … system call of each kind on the database files fail, one in each run, and
// then from that call on, as SQLite's own tests do. The server must return an error that the client
// may retry, keep every acknowledged write, and recover without a restart.
import { Database } from "bun:sqlite";
import { afterAll, beforeAll, describe, test } from "bun:test";
import { CHECKPOINT_PAGES } from "../../src/sqlite/connection.ts";
import { makeDirectory } from "../directory.ts";
import { newEmail, newUser } from "../http/make.ts";
import { startReplica, type TestResponse } from "../http/server.ts";
import { untilHealth } from "./health.ts";
import {
  type Base,
  copyBase,
  emailOf,
  failEachCall,
  faultOf,
  findLost,
  isUnavailable,
  type Kind,
  lastLineOf,
  makeBase,
  messageOf,
  nothingAcknowledged,
  type Outcome,
  open,
  read,
  sync,
  timeoutMs,
  truncate,
  write,
  writeToFullDisk,
  writing,
} from "./io-errors.ts";
import { inject, skipTraced } from "./strace.ts";

/** How long a client retries after the fault has ended. */
const TIMEOUT_MS = 20_000;
const RETRY_AFTER_MS = 100;

/** The exit code of a process that was ended by SIGKILL. */
const KILLED = 137;

const reading = [read];

/** A request that every run sends twice: with the fault and after it. */
interface Request {
  readonly method: "GET" | "POST" | "PATCH";
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly kinds: readonly Kind[];
}

/** @param wanted the body of a GET without a fault. A write that failed must succeed when it is retried. */
function isDone({ method }: Request, response: TestResponse, wanted: string): boolean {
  if (method === "GET") return response.status === 200 && response.text === wanted;
  return response.status === (method === "POST" ? 201 : 200);
}

async function attemptRequest(
  base: Base,
  request: Request,
  wanted: string,
  kind: Kind,
  when: string,
): Promise<Outcome> {
  using directory = makeDirectory();
  const database = copyBase(base, directory);
  const server = await startReplica(database, {}, base.tokens);
  const problems: string[] = [];
  const acknowledged = nothingAcknowledged(base.users);
  let injected: string[] = [];

  async function send(): Promise<boolean> {
    const { method, path, body, headers = {} } = request;
    const response = await server.call(method, path, { body, headers });
    const done = isDone(request, response, wanted);
    const { status, text } = response;
    if (!done && !isUnavailable(response)) problems.push(`${status} ${text.slice(0, 200)}`);
    if (!done || method === "GET") return done;
    const record = response.json.data;
    const [, resource] = path.split("/");
    acknowledged.records.set(`/${resource}/${record.id}`, record);
    if (path === "/users") acknowledged.users += 1;
    if (record.version !== (method === "POST" ? 1 : 2)) problems.push("it was applied twice");
    return true;
  }

  async function sendDuringFault(): Promise<boolean> {
    const release = await inject(server.pid ?? 0, faultOf(kind, when, database));
    try {
      const done = await send();
      // Health may be bad for a second afterwards: one run that waits for it is enough.
      if (when === "1+") {
        const health = await server.call("GET", "/health", { token: null });
        if (health.status !== 200 && !isUnavailable(health)) {
          problems.push(`health: ${health.status} ${health.text}`);
        }
      }
      return done;
    } finally {
      injected = await release();
    }
  }

  try {
    let done = await sendDuringFault();
    const deadlineMs = performance.now() + TIMEOUT_MS;
    while (!done) {
      if (performance.now() > deadlineMs) throw new Error("still unavailable after the fault");
      await Bun.sleep(RETRY_AFTER_MS);
      done = await send();
    }
    await untilHealth(server, 200);
    await newUser(server);
    acknowledged.users += 1;
  } catch (error) {
    problems.push(messageOf(error));
  }
  const code = await server.stop("SIGKILL");
  if (code !== KILLED) problems.push(`exit code ${code}: ${lastLineOf(server.output)}`);
  problems.push(...(await findLost(database, acknowledged)));
  return { injected, problems };
}

const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];

/** In a database of 1,000 users with a write-ahead log. */
const requests: readonly (readonly [name: string, request: Request])[] = [
  ["GET of a user", { method: "GET", path: "/users/500", kinds: reading }],
  ["GET of a list", { method: "GET", path: "/users?limit=20&offset=700", kinds: reading }],
  ["GET by email", { method: "GET", path: `/users?email=${emailOf(300)}`, kinds: reading }],
  ["GET of health", { method: "GET", path: "/health", kinds: [write, sync] }],
  [
    "POST of a user",
    { method: "POST", path: "/users", body: { email: "new@example.com" }, kinds: writing },
  ],
  [
    "POST of an order with a key",
    {
      method: "POST",
      path: "/orders",
      body: { user_id: 400, currency: "EUR", items },
      headers: { "idempotency-key": "an-order" },
      kinds: writing,
    },
  ],
  [
    "PATCH of a user",
    { method: "PATCH", path: "/users/600", body: { name: "New name" }, kinds: writing },
  ],
];

/** Writes so much from another connection that a checkpoint is due after the server's next commit. */
function fillLog(database: string): void {
  using db = new Database(database);
  db.run("pragma wal_autocheckpoint = 0");
  db.run("pragma synchronous = off");
  // The server writes now and then as well, e.g. when a token was used.
  db.run("pragma busy_timeout = 5000");
  const rename = db.prepare("update users set name = ? where id = 1");
  for (let frame = 0; frame <= CHECKPOINT_PAGES; frame += 1) rename.run(`Name ${frame}`);
}

async function attemptCheckpoint(base: Base, kind: Kind, when: string): Promise<Outcome> {
  using directory = makeDirectory();
  const database = copyBase(base, directory);
  const server = await startReplica(database, {}, base.tokens);
  const problems: string[] = [];
  const acknowledged = nothingAcknowledged(base.users);
  let injected: string[] = [];

  async function create(): Promise<boolean> {
    const response = await server.call("POST", "/users", { body: { email: newEmail() } });
    if (response.status === 201) {
      acknowledged.records.set(`/users/${response.json.data.id}`, response.json.data);
      acknowledged.users += 1;
    } else if (!isUnavailable(response)) {
      problems.push(`${response.status} ${response.text}`);
    }
    return response.status === 201;
  }

  try {
    fillLog(database);
    const release = await inject(server.pid ?? 0, faultOf(kind, when, database));
    try {
      // The first starts the checkpoint, and the second waits for it.
      await create();
      await create();
    } finally {
      injected = await release();
    }
    const deadlineMs = performance.now() + TIMEOUT_MS;
    while (!(await create())) {
      if (performance.now() > deadlineMs) throw new Error("still unavailable after the fault");
      await Bun.sleep(RETRY_AFTER_MS);
    }
    await untilHealth(server, 200);
  } catch (error) {
    problems.push(messageOf(error));
  }
  const code = await server.stop("SIGKILL");
  if (code !== KILLED) problems.push(`exit code ${code}: ${lastLineOf(server.output)}`);
  problems.push(...(await findLost(database, acknowledged)));
  return { injected, problems };
}

describe.skipIf(skipTraced)("with 1,000 users", () => {
  let base: Base;
  beforeAll(async () => {
    base = await makeBase({ users: 1_000, withLog: false });
  });
  afterAll(() => base[Symbol.asyncDispose]());

  test.each(requests)(
    "%s succeeds or returns 503 when a system call fails",
    async (name, request) => {
      let wanted = "";
      if (request.method === "GET") {
        using directory = makeDirectory();
        await using server = await startReplica(copyBase(base, directory), {}, base.tokens);
        wanted = (await server.call("GET", request.path)).text;
      }
      await failEachCall(name, request.kinds, (...fault) =>
        attemptRequest(base, request, wanted, ...fault),
      );
    },
    timeoutMs,
  );

  test(
    "a checkpoint loses no data when a system call fails",
    async () => {
      const kinds = [read, { ...write, files: [""] }, { ...writeToFullDisk, files: [""] }];
      await failEachCall("checkpoint", [...kinds, sync, truncate, open], (...fault) =>
        attemptCheckpoint(base, ...fault),
      );
    },
    timeoutMs,
  );
});
