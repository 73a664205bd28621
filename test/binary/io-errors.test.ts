// Makes the first, second, third … system call of each kind on the database files fail, one in each run, and
// then from that call on, as SQLite's own tests do. The server must return an error that the client
// may retry, keep every acknowledged write, and recover without a restart.
import { Database } from "bun:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, existsSync, readdirSync } from "node:fs";
import type { Order } from "../../src/order.ts";
import { CHECKPOINT_PAGES } from "../../src/sqlite/connection.ts";
import { newToken } from "../../src/token.ts";
import type { User } from "../../src/user.ts";
import { parsed } from "../contract/open.ts";
import { makeDirectory, type TemporaryDirectory } from "../directory.ts";
import { newEmail, newUser } from "../http/make.ts";
import {
  sendCall,
  startReplica,
  startServer,
  type TestResponse,
  type TestServer,
  type TestTokens,
} from "../http/server.ts";
import { binary, runProgram, startProgram } from "../program.ts";
import { openDatabase } from "../sqlite/open-database.ts";
import { untilHealth } from "./health.ts";
import { type Fault, inject, readInjected, skipTraced, startOptionsOf } from "./strace.ts";

/** Concurrent runs: each mostly waits for the program. */
const LANES = 4;
/** All calls up to this one fail once in turn; of the later ones only some do, with growing gaps. */
const EACH_CALL_TO = 12;
/** More calls than any scenario makes. If a call can still fail at this point, the run is endless. */
const MAX_CALLS = 2_000;
/** How long a client retries after the fault has ended. */
const TIMEOUT_MS = 20_000;
const RETRY_AFTER_MS = 20;

/** The exit code of a process that was ended by SIGKILL. */
const KILLED = 137;

interface Kind {
  readonly calls: string;
  readonly error: string;
  /** Suffixes of the database file's name; `null` for all files. */
  readonly files: readonly string[] | null;
}

const files = ["", "-wal", "-shm"];
const read: Kind = { calls: "pread64,read", error: "EIO", files };
const write: Kind = { calls: "pwrite64,write", error: "EIO", files };
const writeToFullDisk: Kind = { ...write, error: "ENOSPC" };
const sync: Kind = { calls: "fsync,fdatasync", error: "EIO", files };
const truncate: Kind = { calls: "ftruncate", error: "EIO", files };
const open: Kind = { calls: "openat", error: "EIO", files: [...files, "-serving"] };
const map: Kind = { calls: "mmap", error: "ENOMEM", files: ["-shm"] };
/** Calls on all files, because the name of a backup's temporary file is unknown. */
const ofBackup: readonly Kind[] = [
  { calls: "pread64", error: "EIO", files: null },
  { calls: "pwrite64", error: "EIO", files: null },
  { calls: "pwrite64", error: "ENOSPC", files: null },
  { calls: "fsync,fdatasync", error: "EIO", files: null },
  open,
];
const reading = [read];
const writing = [read, write, writeToFullDisk, sync];
const opening = [...writing, truncate, open, map];

/** Result of a run with one fault. */
interface Outcome {
  /** The calls that failed; empty if the run made fewer calls. */
  readonly injected: readonly string[];
  /** Violations of what the program promises. */
  readonly problems: readonly string[];
}

type Attempt = (kind: Kind, when: string) => Promise<Outcome>;

/** How often an error occurs from a call on. */
type Duration = "once" | "twice" | "always";

/** @returns the ordinal of the call that fails first in the run after this one */
function nextCall(call: number, duration: Duration): number {
  const gap = call < EACH_CALL_TO ? 1 : Math.ceil(call / 4);
  // A longer error includes the next call, so it begins at every second one.
  return call + (duration === "once" ? gap : 2 * gap);
}

/** A full disk stays full for a while, but a disk can fail briefly. */
function durationsOf(kind: Kind): readonly Duration[] {
  if (kind.error === "ENOSPC") return ["always"];
  // A read that fails is tried again, and reported as damage.
  return kind === read ? ["once", "twice", "always"] : ["once", "always"];
}

/** Runs `attempt` with a fault in each call of each kind, and expects no problem in any run. */
async function failEachCall(
  scenario: string,
  kinds: readonly Kind[],
  attempt: Attempt,
): Promise<void> {
  const problems: string[] = [];
  const counts: Record<string, number> = {};
  const jobs = kinds.flatMap((kind) => durationsOf(kind).map((duration) => ({ kind, duration })));

  async function run({ kind, duration }: (typeof jobs)[number]): Promise<void> {
    const name = `${kind.calls} ${kind.error} ${duration}`;
    counts[name] = 0;
    for (let call = 1; call < MAX_CALLS; call = nextCall(call, duration)) {
      const when = { once: `${call}`, twice: `${call}..${call + 1}`, always: `${call}+` }[duration];
      const outcome = await attempt(kind, when);
      const fault = `${scenario}: ${kind.calls} #${when} ${kind.error}`;
      const [first = "no call failed"] = outcome.injected;
      problems.push(...outcome.problems.map((problem) => `${fault} (${first}): ${problem}`));
      if (outcome.injected.length === 0) return;
      counts[name] = (counts[name] ?? 0) + 1;
    }
    problems.push(`${scenario}: ${kind.calls}: more than ${MAX_CALLS} calls`);
  }

  async function work(): Promise<void> {
    for (let job = jobs.shift(); job !== undefined; job = jobs.shift()) await run(job);
  }
  await Promise.all(Array.from({ length: LANES }, work));

  // How much a run covers: IO_ERRORS_VERBOSE=true bun test test/binary/io-errors.test.ts
  if (Bun.env["IO_ERRORS_VERBOSE"] === "true") console.info(scenario, counts);
  expect(problems).toEqual([]);
  // Otherwise a scenario without any such call would pass.
  expect(Object.values(counts).some((count) => count > 0)).toBe(true);
}

/** The database that each run starts with; its files are copied. */
interface Base extends AsyncDisposable {
  readonly path: string;
  readonly tokens: TestTokens;
  readonly users: number;
}

interface BaseOptions {
  readonly users: number;
  /** Whether the last writes are left in the write-ahead log, as after a crash. */
  readonly withLog: boolean;
}

function emailOf(id: number): string {
  return `user-${id}-${"x".repeat(60)}@example.com`;
}

async function makeBase({ users, withLog }: BaseOptions): Promise<Base> {
  const server = await startServer();
  const note = "n".repeat(400);
  for (let first = 1; first <= users; first += 100) {
    const ids = Array.from({ length: Math.min(100, users + 1 - first) }, (_, at) => first + at);
    await Promise.all(
      ids.map((id) => newUser(server, { email: emailOf(id), metadata: { a: note, b: note } })),
    );
  }
  await server.stop();
  if (withLog) {
    await server.restart();
    for (let id = 1; id <= users; id += Math.ceil(users / 8)) {
      await server.call("PATCH", `/users/${id}`, { body: { name: "In the log" } });
    }
    await server.stop("SIGKILL");
  }
  return {
    path: server.database,
    tokens: { writeToken: server.writeToken, readToken: server.readToken },
    users,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** @returns the path of the copy */
function copyBase(base: Base, directory: TemporaryDirectory): string {
  const path = directory.at("test.db");
  // Not the shared memory: the first process that opens the database creates it.
  for (const suffix of ["", "-wal"]) {
    if (existsSync(base.path + suffix)) copyFileSync(base.path + suffix, path + suffix);
  }
  return path;
}

function faultOf({ calls, error, files }: Kind, when: string, database: string): Fault {
  return { calls, error, when, paths: (files ?? []).map((suffix) => database + suffix) };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 300) : String(error);
}

function lastLineOf(text: string): string {
  return text.trimEnd().split("\n").at(-1) ?? "";
}

/** What must be stored after a crash. */
interface Acknowledged {
  /** By path. */
  readonly records: Map<string, unknown>;
  users: number;
  /**
   * Creates that failed after their transaction was written, e.g. because its sync failed. After a crash they may
   * be stored, like any write that was not acknowledged.
   */
  inDoubt: number;
}

function nothingAcknowledged(users: number): Acknowledged {
  return { records: new Map(), users, inDoubt: 0 };
}

/**
 * Opens the database as a server does, without a fault, and compares. In this process, because starting the binary
 * would take half of the time of these tests.
 * @returns the differences
 */
async function findLost(
  database: string,
  { records, users, inDoubt }: Acknowledged,
): Promise<string[]> {
  const problems: string[] = [];
  try {
    const store = await openDatabase(database);
    try {
      const { total } = await store.users.list({ limit: 1, offset: 0 });
      if (total < users || total > users + inDoubt) {
        problems.push(`${total} users after a crash, not ${users}`);
      }
      for (const [path, record] of records) {
        const [, resource, id] = path.split("/");
        const { get } = resource === "users" ? store.users : store.orders;
        const found = parsed<User | Order>(await get(Number(id)));
        if (!Bun.deepEquals(found, record)) {
          problems.push(`${path}: ${JSON.stringify(found)} after a crash`);
        }
      }
      // While the store is open: it must have recovered the file, not this check.
      using db = new Database(database, { readonly: true });
      const checked = db.query("pragma integrity_check").all();
      if (!Bun.deepEquals(checked, [{ integrity_check: "ok" }])) {
        problems.push(`integrity_check: ${JSON.stringify(checked)}`);
      }
    } finally {
      await store.close();
    }
  } catch (error) {
    problems.push(`cannot be compared after a crash: ${messageOf(error)}`);
  }
  return problems;
}

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

/** A temporary fault must be a 503, so that the client retries. */
function isUnavailable({ status, headers }: TestResponse): boolean {
  return status === 503 && headers.has("retry-after");
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

/** A program that fails must exit with 1 and print one error line. @returns violations of that */
function problemsOfEnd(code: number | null, stderr: string): string[] {
  const isClear = /^(Cannot [^\n]+|[^\n]+ is damaged: \d+ problems? found)\n$/.test(stderr);
  if (code === 0 ? stderr === "" : code === 1 && isClear) return [];
  return [`exit code ${code}: ${stderr.slice(0, 500)}`];
}

async function attemptShutdown(base: Base, kind: Kind, when: string): Promise<Outcome> {
  using directory = makeDirectory();
  const database = copyBase(base, directory);
  const server = await startReplica(database, {}, base.tokens);
  const acknowledged = nothingAcknowledged(base.users);
  for (let user = 0; user < 3; user += 1) {
    const record = await newUser(server);
    acknowledged.records.set(`/users/${record.id}`, record);
    acknowledged.users += 1;
  }
  const release = await inject(server.pid ?? 0, faultOf(kind, when, database));
  const code = await server.stop("SIGTERM");
  const injected = await release();
  const stderr = server.output.replaceAll(/^\{.*\n/gm, "");
  const lost = await findLost(database, acknowledged);
  return { injected, problems: [...problemsOfEnd(code, stderr), ...lost] };
}

interface Started {
  /** `null` if it has exited instead. */
  readonly url: string | null;
  readonly code: number | null;
  readonly stderr: string;
  /** Ends the program. @returns the calls that failed */
  end(): Promise<string[]>;
}

/** Starts the program under strace, and waits until it listens or has exited. */
async function startWithFault(fault: Fault, trace: string, env: Record<string, string>) {
  // -D: the program is our own child, so that our signal is for it.
  const command = ["strace", "-D", ...startOptionsOf(fault, trace), binary, "serve"];
  const child = startProgram(command, { env });
  const url = await child.listening;
  const { code, stderr } = url === null ? await child.ended : { code: null, stderr: "" };
  return {
    url,
    code,
    stderr,
    async end() {
      child.kill("SIGKILL");
      const lastLine = new RegExp(`^${child.pid} .*\\+\\+\\+ (?:exited|killed) .*$`, "m");
      for (;;) {
        const text = await Bun.file(trace).text();
        if (lastLine.test(text)) return readInjected(text);
        await Bun.sleep(2);
      }
    },
  } satisfies Started;
}

/** @param base `null` for a database that does not exist yet */
async function attemptStart(base: Base | null, kind: Kind, when: string): Promise<Outcome> {
  using directory = makeDirectory();
  const database = base === null ? directory.at("test.db") : copyBase(base, directory);
  const token = newToken();
  const env = { DATABASE_URL: database, PORT: "0", API_TOKEN: token, PATH: Bun.env["PATH"] ?? "" };
  const acknowledged = nothingAcknowledged(base?.users ?? 0);
  const problems: string[] = [];
  const fault = faultOf(kind, when, database);
  const { url, code, stderr, end } = await startWithFault(fault, directory.at("trace"), env);
  if (url === null) {
    problems.push(...problemsOfEnd(code, stderr));
    if (code === 0) problems.push("it does not serve");
  } else {
    try {
      const body = { email: newEmail() };
      const response = await sendCall(url, token, "POST", "/users", { body });
      if (response.status === 201) {
        acknowledged.records.set(`/users/${response.json.data.id}`, response.json.data);
        acknowledged.users += 1;
      } else if (isUnavailable(response)) {
        acknowledged.inDoubt = 1;
      } else {
        problems.push(`${response.status} ${response.text}`);
      }
    } catch (error) {
      problems.push(messageOf(error));
    }
  }
  const injected = await end();
  problems.push(...(await findLost(database, acknowledged)));
  return { injected, problems };
}

/** Runs a command under strace while the server is running. */
async function runWithFault(fault: Fault, trace: string, database: string, args: string[]) {
  const command = ["strace", ...startOptionsOf(fault, trace), binary, ...args];
  const env = { DATABASE_URL: database };
  const outcome = await runProgram(command, { env });
  return { ...outcome, injected: readInjected(await Bun.file(trace).text()) };
}

async function attemptCheck(server: TestServer, kind: Kind, when: string): Promise<Outcome> {
  using directory = makeDirectory();
  const { database } = server;
  const fault = faultOf(kind, when, database);
  const result = await runWithFault(fault, directory.at("trace"), database, ["check"]);
  const { code, stdout, stderr, injected } = result;
  const problems = problemsOfEnd(code, stderr);
  if (code === 0 && stdout !== "ok\n") problems.push(`it prints ${stdout}`);
  return { injected, problems };
}

async function attemptBackup(server: TestServer, kind: Kind, when: string): Promise<Outcome> {
  using directory = makeDirectory();
  using target = makeDirectory();
  const { database } = server;
  const copy = target.at("copy.db");
  const fault = faultOf(kind, when, database);
  const result = await runWithFault(fault, directory.at("trace"), database, ["backup", copy]);
  const { code, stderr, injected } = result;
  // The dynamic loader reads libraries with the same system call before the program starts.
  if (injected.some((call) => /\.so[.\d]* at /.test(call))) return { injected, problems: [] };
  const problems = problemsOfEnd(code, stderr);
  const left = readdirSync(target.path);
  if (code === 0) {
    using db = new Database(copy, { readonly: true });
    const checked = db.query("pragma integrity_check").all();
    if (!Bun.deepEquals(checked, [{ integrity_check: "ok" }])) problems.push("the copy is damaged");
    if (left.length > 1) problems.push(`it leaves ${left}`);
  } else if (left.length > 0) {
    problems.push(`it leaves ${left}`);
  }
  return { injected, problems };
}

/** The server must still work after a command failed next to it. */
async function expectHealthy(server: TestServer): Promise<void> {
  await untilHealth(server, 200);
  await newUser(server);
}

const timeoutMs = 120_000;

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

describe.skipIf(skipTraced)("with 60 users", () => {
  let base: Base;
  beforeAll(async () => {
    base = await makeBase({ users: 60, withLog: true });
  });
  afterAll(() => base[Symbol.asyncDispose]());

  test(
    "serve starts or prints one error line when a system call fails on a new database",
    () => failEachCall("first start", opening, (...fault) => attemptStart(null, ...fault)),
    timeoutMs,
  );

  test(
    "serve starts or prints one error line when a system call fails after a crash",
    () => failEachCall("start", opening, (...fault) => attemptStart(base, ...fault)),
    timeoutMs,
  );

  test(
    "serve keeps every acknowledged write when a system call fails during shutdown",
    () => failEachCall("shutdown", [...writing, truncate], (...f) => attemptShutdown(base, ...f)),
    timeoutMs,
  );

  test(
    "check succeeds or prints one error line when a system call fails",
    async () => {
      using directory = makeDirectory();
      await using server = await startReplica(copyBase(base, directory), {}, base.tokens);
      await newUser(server);
      await failEachCall("check", [read, open, map], (...fault) => attemptCheck(server, ...fault));
      await expectHealthy(server);
    },
    timeoutMs,
  );

  test(
    "backup leaves a complete copy or none when a system call fails",
    async () => {
      using directory = makeDirectory();
      await using server = await startReplica(copyBase(base, directory), {}, base.tokens);
      await newUser(server);
      await failEachCall("backup", ofBackup, (...fault) => attemptBackup(server, ...fault));
      await expectHealthy(server);
    },
    timeoutMs,
  );
});
