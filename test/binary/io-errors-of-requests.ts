/** Makes system calls of a server fail while it handles a request, which is repeated after the fault. */
import { newToken } from "../../src/domain/token.ts";
import { newUser } from "../http/make.ts";
import { startReplica, type TestResponse, type TestServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { untilHealth } from "./health.ts";
import {
  type Acknowledged,
  type Base,
  copyBase,
  failEachCall,
  faultOf,
  findLost,
  isUnavailable,
  type Kind,
  lastLineOf,
  messageOf,
  nothingAcknowledged,
  type Outcome,
} from "./io-errors.ts";
import { inject } from "./strace.ts";

/** How long a client retries after the fault has ended. */
const TIMEOUT_MS = 20_000;
const RETRY_AFTER_MS = 100;

/** The exit code of a process that was ended by SIGKILL. */
const KILLED = 137;

/** A request that every run sends twice: with the fault and after it. */
export interface Request {
  readonly method: "GET" | "POST" | "PATCH";
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly kinds: readonly Kind[];
}

/** A run with a fault. */
export interface Run {
  readonly server: TestServer;
  readonly acknowledged: Acknowledged;
  readonly problems: string[];
  /** Calls `work` while system calls fail. */
  duringFault<Result>(work: () => Promise<Result>): Promise<Result>;
}

/** Runs `work` on a copy of the database, kills the server, and compares what is stored. */
export async function attempt(
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
  if (code !== KILLED) problems.push(`exit code ${code}: ${lastLineOf(server.output)}`);
  problems.push(...(await findLost(database, acknowledged)));
  return { injected, problems };
}

/** Repeats a request that has failed with the fault. @param send returns whether it has succeeded */
export async function retry(send: () => Promise<boolean>): Promise<void> {
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

/** Makes each call of the request fail. @see failEachCall */
export async function failEachCallOf(name: string, base: Base, request: Request): Promise<void> {
  let wanted = "";
  if (request.method === "GET") {
    using directory = makeDirectory();
    await using server = await startReplica(copyBase(base, directory), {}, base.tokens);
    wanted = (await server.call("GET", request.path)).text;
  }
  await failEachCall(name, request.kinds, (kind, when) =>
    attempt(base, kind, when, (run) => sendTwice(run, request, wanted, when)),
  );
}
