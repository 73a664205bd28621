/** A server for a test: in this process or, if TEST_BINARY is set, the compiled program. */
import { afterAll } from "bun:test";
import { connect } from "node:net";
import { hashToken, newToken } from "../../src/domain/token.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { withStore } from "../support/open-store.ts";
import { binary, startProgram } from "../support/program.ts";
import { runHere } from "../support/run-here.ts";
import { dropDatabase, newDatabase } from "./backend.ts";
import { expectDocumented, type ReceivedResponse } from "./documented.ts";

export const againstBinary: boolean = binary !== "";

export interface TestResponse extends ReceivedResponse {
  /** `undefined` if the body is not JSON. */
  readonly json: any;
}

export interface CallOptions {
  readonly body?: unknown;
  readonly raw?: string | Uint8Array<ArrayBuffer>;
  readonly headers?: Readonly<Record<string, string>>;
  /** `null` for none. Default: the write token. */
  readonly token?: string | null;
}

type StopSignal = "SIGTERM" | "SIGQUIT" | "SIGKILL";

export type TestServer = Awaited<ReturnType<typeof startReplica>>;

type Settings = Readonly<Record<string, string>>;

/** Resolves when it listens. Rejects if it exits instead. */
async function start(environment: Settings) {
  if (!againstBinary) {
    const { output, listening, stop } = runHere(["serve"], { environment, program: "user-api" });
    const stopHere = async () => (await stop()).code;
    return { pid: null, output, url: await listening(), stop: stopHere };
  }
  const running = startProgram([binary, "serve"], { env: environment });
  const { pid, output, kill, ended } = running;
  const url = await running.listening;
  if (url === null) throw new Error(output());
  async function stop(signal: StopSignal): Promise<number> {
    kill(signal);
    return (await ended).code;
  }
  return { pid, output, url, stop };
}

export async function createToken(
  database: string,
  name: string,
  scope: string,
  expiresAt: string | null = null,
): Promise<string> {
  const token = newToken();
  const fields = { hash: hashToken(token), name, scope, expires_at: expiresAt };
  await withStore(database, ({ tokens }) => tokens.create(fields));
  return token;
}

/**
 * Compares every response with the OpenAPI document.
 * @param defaultToken sent unless the options have another token, or `null` for none
 */
export async function sendCall(
  url: string,
  defaultToken: string,
  method: string,
  path: string,
  { body, raw, headers = {}, token = defaultToken }: CallOptions,
): Promise<TestResponse> {
  const all = new Headers(headers);
  if (token !== null && !all.has("authorization")) all.set("authorization", `Bearer ${token}`);
  if (body !== undefined && !all.has("content-type")) {
    all.set("content-type", "application/json");
  }
  const text = body === undefined ? raw : JSON.stringify(body);
  // As bytes, because `fetch` adds a content type to a string.
  const content = typeof text === "string" ? new TextEncoder().encode(text) : (text ?? null);
  const init = { method, headers: all, body: content, redirect: "manual" } as const;
  const response = await fetch(`${url}/api/v1${path}`, init);
  const { status, headers: given } = response;
  const received = { status, headers: given, text: await response.text() };
  expectDocumented(method, `/api/v1${path}`, received);
  const isJson = given.get("content-type") === "application/json" && received.text !== "";
  return { ...received, json: isJson ? JSON.parse(received.text) : undefined };
}

/** How long the next byte of a response may take. A busy machine, or an emulated processor, needs long. */
const IDLE_MS = 30_000;

function sendBytes(url: string, bytes: string | Uint8Array, end?: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    let received = "";
    const socket = connect({ host: hostname, port: Number(port) }, () => socket.write(bytes));
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    socket.on("data", (data) => {
      received += data.toString("latin1");
      if (end?.test(received)) socket.destroy();
    });
    socket.on("error", (error) => (received === "" ? reject(error) : resolve(received)));
    socket.on("close", () => resolve(received));
  });
}

/**
 * Starts a server on a database that others may use. The database is kept.
 * @param settings environment variables by name
 * @param tokens the tokens for calls
 */
export async function startReplica(
  database: string,
  settings: Settings = {},
  tokens = { writeToken: "", readToken: "" },
) {
  const environment = { DATABASE_URL: database, PORT: "0", SHUTDOWN_SECONDS: "2", ...settings };
  let running = await start(environment);
  let stopped: Promise<number> | null = null;

  /** Keeps the database. In this process, every signal is a clean stop. @returns the exit code */
  function stop(signal: StopSignal = "SIGTERM"): Promise<number> {
    // SIGKILL also ends a server that waits for requests after SIGTERM. A second SIGTERM would end it, too.
    if (stopped === null || signal === "SIGKILL") stopped = running.stop(signal);
    return stopped;
  }

  return {
    ...tokens,
    database,
    /** `http://127.0.0.1:<port>` */
    get url() {
      return running.url;
    },
    /** The process id of the program; `null` if the server runs in this process. */
    get pid() {
      return running.pid;
    },
    get output() {
      return running.output();
    },
    call: (method: string, path: string, options: CallOptions = {}) =>
      sendCall(running.url, tokens.writeToken, method, path, options),
    stop,
    /** Restarts on the same database, on another port. */
    async restart(): Promise<void> {
      await stop();
      running = await start(environment);
      stopped = null;
    },
    /** Sends bytes. @returns what is received until the server closes the connection, or until it matches `end` */
    raw: (bytes: string | Uint8Array, end?: RegExp) => sendBytes(running.url, bytes, end),
    async [Symbol.asyncDispose](): Promise<void> {
      await stop();
    },
  };
}

/**
 * Starts a server on its own database.
 * @param settings environment variables by name
 * @param directory the directory of the database, deleted with the server
 */
export async function startServer(
  settings: Settings = {},
  directory: TemporaryDirectory = makeDirectory(),
): Promise<TestServer> {
  const database = await newDatabase(directory);
  const tokens = {
    writeToken: await createToken(database, "write-test", "write"),
    readToken: await createToken(database, "read-test", "read"),
  };
  const server = await startReplica(database, settings, tokens);
  return Object.assign(server, {
    async [Symbol.asyncDispose]() {
      // Takes 0.1 s less than a clean shutdown.
      await server.stop("SIGKILL");
      await dropDatabase(database);
      directory[Symbol.dispose]();
    },
  });
}

export async function startSharedServer(settings: Settings = {}): Promise<TestServer> {
  const server = await startServer(settings);
  afterAll(() => server[Symbol.asyncDispose]());
  return server;
}

/** @param request e.g. `GET /users?limit=1` */
export function sendRequest(
  server: Pick<TestServer, "call">,
  request: string,
  options: CallOptions = {},
): Promise<TestResponse> {
  const space = request.indexOf(" ");
  return server.call(request.slice(0, space), request.slice(space + 1), options);
}

export async function logs(server: TestServer): Promise<Record<string, unknown>[]> {
  const marker = crypto.randomUUID();
  await server.call("GET", "/health", { headers: { "x-request-id": marker }, token: null });
  while (!server.output.includes(marker)) await Bun.sleep(2);
  return server.output
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line));
}
