// Makes the first, second, third … system call of each kind on the database files fail while a server handles a request,
// one in each run, and then from that call on, as SQLite's own tests do. The response must be an error that the client may
// retry, the server must recover without a restart, and it must keep every acknowledged write.
import { Database } from "bun:sqlite";
import { describe } from "bun:test";
import { newToken } from "../../src/domain/token.ts";
import { newEmail, newUser } from "../http/make.ts";
import { startReplica, type TestResponse, type TestServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillLog, untilHealth } from "./disk.ts";
import {
  type Acknowledged,
  type Base,
  copyBase,
  failEachCall,
  faultOf,
  findLost,
  isUnavailable,
  type Kind,
  messageOf,
  noteCreated,
  nothingAcknowledged,
  type Outcome,
  open,
  read,
  readNoDisk,
  sync,
  truncate,
  useBase,
  write,
  writeToFullDisk,
  writing,
} from "./io-errors.ts";
import { test } from "./on-binary.ts";
import { inject, skipTraced } from "./strace.ts";

const TIMEOUT_MS = 30_000;
const RETRY_AFTER_MS = 100;

const KILLED = 137;

interface Request {
  readonly method: "GET" | "POST" | "PATCH";
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly kinds: readonly Kind[];
  readonly prepare?: (database: string) => void;
}

interface Run {
  readonly server: TestServer;
  readonly acknowledged: Acknowledged;
  readonly problems: string[];
  duringFault<Result>(work: () => Promise<Result>): Promise<Result>;
}

/** Runs `work` on a copy of the database, kills the server, and compares what is stored. */
async function attempt(
  base: Base,
  kind: Kind,
  when: string,
  work: (run: Run) => Promise<void>,
): Promise<Outcome> {
  using directory = makeDirectory();
  const database = copyBase(base, directory);
  // With a token, the start is over when the server listens.
  const server = await startReplica(database, { API_TOKEN: newToken() }, base.tokens);
  const acknowledged = nothingAcknowledged(base.users);
  const problems: string[] = [];
  let injected: string[] = [];
  async function duringFault<Result>(during: () => Promise<Result>): Promise<Result> {
    const release = await inject(server.pid ?? 0, faultOf(kind, when, database));
    try {
      return await during();
    } finally {
      injected = await release();
    }
  }
  try {
    await work({ server, acknowledged, problems, duringFault });
  } catch (error) {
    problems.push(messageOf(error));
  }
  const code = await server.stop("SIGKILL");
  if (code !== KILLED) problems.push(`exit code ${code}: ${server.output.slice(-500)}`);
  problems.push(...(await findLost(database, acknowledged)));
  return { injected, problems };
}

/** Repeats a request that has failed with the fault. @param send returns whether it has succeeded */
async function retry(send: () => Promise<boolean>): Promise<void> {
  const deadlineMs = performance.now() + TIMEOUT_MS;
  while (!(await send())) {
    if (performance.now() > deadlineMs) throw new Error("still unavailable after the fault");
    await Bun.sleep(RETRY_AFTER_MS);
  }
}

/** @param wanted the body of a GET without a fault. A write that failed must succeed when it is retried. */
function isDone({ method }: Request, response: TestResponse, wanted: string): boolean {
  if (method === "GET") return response.status === 200 && response.text === wanted;
  return response.status === (method === "POST" ? 201 : 200);
}

async function sendTwice(run: Run, request: Request, wanted: string, when: string): Promise<void> {
  const { server, acknowledged, problems } = run;

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

  request.prepare?.(server.database);
  const done = await run.duringFault(async () => {
    const isSent = await send();
    // Health may be bad for a second afterwards: one run that waits for it is enough.
    if (when === "1+") {
      const health = await server.call("GET", "/health", { token: null });
      if (health.status !== 200 && !isUnavailable(health)) {
        problems.push(`health: ${health.status} ${health.text}`);
      }
    }
    return isSent;
  });
  if (!done) await retry(send);
  await untilHealth(server, 200);
  await newUser(server);
  acknowledged.users += 1;
}

async function failEachCallOf(name: string, base: Base, request: Request): Promise<void> {
  let wanted = "";
  if (request.method === "GET") {
    using directory = makeDirectory();
    const database = copyBase(base, directory);
    await using server = await startReplica(database, {}, base.tokens);
    request.prepare?.(database);
    wanted = (await server.call("GET", request.path)).text;
  }
  await failEachCall(name, request.kinds, (kind, when) =>
    attempt(base, kind, when, (run) => sendTwice(run, request, wanted, when)),
  );
}

const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];

function renameAll(database: string): void {
  using db = new Database(database);
  db.run("pragma busy_timeout = 5000");
  db.run("update users set name = 'In the log'");
}

/** In a database of 1,000 users with a write-ahead log. */
const requests: readonly (readonly [name: string, request: Request])[] = [
  [
    "GET of a list that is in the log",
    {
      method: "GET",
      path: "/users?limit=20&offset=700",
      kinds: [read, readNoDisk],
      prepare: renameAll,
    },
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

async function checkpoint({ server, acknowledged, problems, duringFault }: Run): Promise<void> {
  async function create(): Promise<boolean> {
    const response = await server.call("POST", "/users", { body: { email: newEmail() } });
    return noteCreated(response, acknowledged, problems);
  }

  fillLog(server.database);
  await duringFault(async () => {
    // The first starts the checkpoint, and the second waits for it.
    await create();
    await create();
  });
  await retry(create);
  await untilHealth(server, 200);
}

describe.skipIf(skipTraced)("with 1,000 users", () => {
  const base = useBase(1_000, false);

  test.each(requests)("%s succeeds or returns 503 when a system call fails", (name, request) =>
    failEachCallOf(name, base(), request),
  );

  test("a checkpoint loses no data when a system call fails", async () => {
    const kinds = [read, { ...write, files: [""] }, { ...writeToFullDisk, files: [""] }];
    await failEachCall("checkpoint", [...kinds, sync, truncate, open], (kind, when) =>
      attempt(base(), kind, when, checkpoint),
    );
  });
});
