// Makes the first, second, third … system call of each kind fail while a program starts, stops, checks or backs up. It
// must do its work, or exit with one error line and leave nothing behind.
import { afterAll, beforeAll, describe } from "bun:test";
import { copyFileSync, readdirSync } from "node:fs";
import { newToken } from "../../src/domain/token.ts";
import { newEmail, newUser } from "../http/make.ts";
import { sendCall, startReplica, startServer, type TestServer } from "../http/server.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { binary, startProgram } from "../support/program.ts";
import { untilHealth } from "./disk.ts";
import * as io from "./io-errors.ts";
import { test, testIf } from "./on-binary.ts";
import { inject, readInjected, runWithFault, skipTraced, startOptionsOf } from "./strace.ts";

/** Calls on all files, because the name of a backup's temporary file is unknown. */
const ofBackup: readonly io.Kind[] = [
  { calls: "pread64", error: "EIO", files: null },
  { calls: "pwrite64", error: "EIO", files: null },
  { calls: "pwrite64", error: "ENOSPC", files: null },
  { calls: "fsync,fdatasync", error: "EIO", files: null },
  io.open,
];
const opening = [...io.writing, io.truncate, io.open, io.map];

const USERS = 60;

/** @returns a server that was killed: the last writes are in the write-ahead log */
async function makeBase(): Promise<TestServer> {
  const server = await startServer();
  await io.importUsers(server.database, USERS);
  await server.restart();
  for (let id = 1; id <= USERS; id += 8)
    await server.call("PATCH", `/users/${id}`, { body: { name: "In the log" } });
  await server.stop("SIGKILL");
  return server;
}

function copyBase({ database }: TestServer, directory: TemporaryDirectory): string {
  const path = directory.at("test.db");
  // Not the shared memory: the first process that opens the database creates it.
  for (const suffix of ["", "-wal"]) copyFileSync(database + suffix, path + suffix);
  return path;
}

/** A program that fails must exit with 1, and print one line that does not call a whole file damaged. @returns violations */
function problemsOfEnd(code: number | null, stderr: string): string[] {
  const isClear = /^Cannot (?!.*(?:damage|malformed|not a database|check failed)).+\n$/.test(
    stderr,
  );
  if (code === 0 ? stderr === "" : code === 1 && isClear) return [];
  return [`exit code ${code}: ${stderr.slice(0, 500)}`];
}

async function attemptShutdown(base: TestServer, kind: io.Kind, when: string) {
  using directory = makeDirectory();
  const database = copyBase(base, directory);
  const server = await startReplica(database, {}, base);
  const acknowledged = io.nothingAcknowledged(USERS);
  for (let user = 0; user < 3; user += 1) io.acknowledgeUser(acknowledged, await newUser(server));
  const release = await inject(server.pid ?? 0, io.faultOf(kind, when, database));
  const code = await server.stop("SIGTERM");
  const injected = await release();
  const stderr = server.output.replaceAll(/^\{.*\n/gm, "");
  const lost = await io.findLost(database, acknowledged);
  return { injected, problems: [...problemsOfEnd(code, stderr), ...lost] };
}

/** @returns the calls that failed, when strace has seen the end of the program */
async function untilTraced(trace: string, pid: number): Promise<string[]> {
  const lastLine = new RegExp(`^${pid} .*\\+\\+\\+ (?:exited|killed) .*$`, "m");
  for (;;) {
    const text = await Bun.file(trace).text();
    if (lastLine.test(text)) return readInjected(text);
    await Bun.sleep(2);
  }
}

/** @param base `null` for a database that does not exist yet */
async function attemptStart(base: TestServer | null, kind: io.Kind, when: string) {
  using directory = makeDirectory();
  const database = base === null ? directory.at("test.db") : copyBase(base, directory);
  const trace = directory.at("trace");
  const token = newToken();
  const env = { DATABASE_URL: database, PORT: "0", API_TOKEN: token, PATH: Bun.env["PATH"] ?? "" };
  const acknowledged = io.nothingAcknowledged(base === null ? 0 : USERS);
  const problems: string[] = [];
  // -D: the program is our own child, so that our signal is for it.
  const options = startOptionsOf(io.faultOf(kind, when, database), trace);
  const child = startProgram(["strace", "-D", ...options, binary, "serve"], { env });
  const url = await child.listening;
  if (url === null) {
    const { code, stderr } = await child.ended;
    // SQLite forgets the I/O error of a file when it reads behind the end, as in an empty one.
    const shown = base === null ? stderr.replace(": the file is damaged", "") : stderr;
    problems.push(...problemsOfEnd(code, shown));
    if (code === 0) problems.push("it does not serve");
  } else {
    try {
      const body = { email: newEmail() };
      const response = await sendCall(url, token, "POST", "/users", { body });
      if (!io.noteCreated(response, acknowledged, problems)) acknowledged.inDoubt = 1;
    } catch (error) {
      problems.push(io.messageOf(error));
    }
  }
  child.kill("SIGKILL");
  const injected = await untilTraced(trace, child.pid);
  problems.push(...(await io.findLost(database, acknowledged)));
  return { injected, problems };
}

/** Runs `check`, or `backup`. */
async function attemptCommand({ database }: TestServer, name: string, kind: io.Kind, when: string) {
  using target = makeDirectory();
  const copy = target.at("copy.db");
  const isBackup = name === "backup";
  const args = isBackup ? [name, copy] : [name];
  const result = await runWithFault(io.faultOf(kind, when, database), database, args);
  const { code, stdout, stderr, injected } = result;
  // The dynamic loader reads libraries with the same system call before the program starts.
  if (injected.some((call) => /\.so[.\d]* at /.test(call))) return { injected, problems: [] };
  // The journal of the copy is closed before SQLite can be asked for its error.
  const isJournal = injected.some((call) => call.includes("-journal"));
  const shown = isJournal ? stderr.replace(": database disk image is malformed", "") : stderr;
  const problems = problemsOfEnd(code, shown);
  if (code === 0 && !(isBackup ? io.isIntact(copy) : stdout === "ok\n"))
    problems.push(`it succeeds, but: ${stdout}`);
  const left = readdirSync(target.path);
  if (left.length > (isBackup && code === 0 ? 1 : 0)) problems.push(`it leaves ${left}`);
  return { injected, problems };
}

describe.skipIf(skipTraced)(`with ${USERS} users`, () => {
  let base: TestServer;
  beforeAll(async () => {
    base = await makeBase();
  });
  afterAll(() => base[Symbol.asyncDispose]());

  testIf(isLong)(
    "serve starts or prints one error line when a system call fails on a new database",
    () => io.failEachCall("first start", opening, (...fault) => attemptStart(null, ...fault)),
  );

  test("serve starts or prints one error line when a system call fails after a crash", () =>
    io.failEachCall("start", opening, (...fault) => attemptStart(base, ...fault)));

  test("serve keeps every acknowledged write when a system call fails during shutdown", () =>
    io.failEachCall("shutdown", [...io.writing, io.truncate], (...f) =>
      attemptShutdown(base, ...f),
    ));

  testIf(isLong).each([
    ["check", "succeeds or prints one error line", [io.read, io.open, io.map]],
    ["backup", "leaves a complete copy or none", ofBackup],
  ] as const)("%s %s when a system call fails", async (name, _, kinds) => {
    using directory = makeDirectory();
    await using server = await startReplica(copyBase(base, directory), {}, base);
    await newUser(server);
    await io.failEachCall(name, kinds, (...fault) => attemptCommand(server, name, ...fault));
    // The server must still work after a command failed next to it.
    await untilHealth(server, 200);
    await newUser(server);
  });
});
