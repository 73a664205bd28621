// Makes the first, second, third … system call of each kind fail while a program starts, stops, checks or backs up. It
// must do its work, or exit with one error line and leave nothing behind.
import { describe } from "bun:test";
import { readdirSync } from "node:fs";
import { newToken } from "../../src/domain/token.ts";
import { newEmail, newUser } from "../http/make.ts";
import { sendCall, startReplica, type TestServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { binary, startProgram } from "../support/program.ts";
import { untilHealth } from "./disk.ts";
import {
  acknowledgeUser,
  type Base,
  copyBase,
  failEachCall,
  faultOf,
  findLost,
  isIntact,
  type Kind,
  map,
  messageOf,
  noteCreated,
  nothingAcknowledged,
  type Outcome,
  open,
  read,
  truncate,
  useBase,
  writing,
} from "./io-errors.ts";
import { test } from "./on-binary.ts";
import {
  type Fault,
  inject,
  readInjected,
  runWithFault,
  skipTraced,
  startOptionsOf,
} from "./strace.ts";

/** Calls on all files, because the name of a backup's temporary file is unknown. */
const ofBackup: readonly Kind[] = [
  { calls: "pread64", error: "EIO", files: null },
  { calls: "pwrite64", error: "EIO", files: null },
  { calls: "pwrite64", error: "ENOSPC", files: null },
  { calls: "fsync,fdatasync", error: "EIO", files: null },
  open,
];
const opening = [...writing, truncate, open, map];

/** A program that fails must exit with 1, and print one line that does not call a whole file damaged. @returns violations */
function problemsOfEnd(code: number | null, stderr: string): string[] {
  const isClear = /^Cannot (?!.*(?:damage|malformed|not a database|check failed)).+\n$/.test(
    stderr,
  );
  if (code === 0 ? stderr === "" : code === 1 && isClear) return [];
  return [`exit code ${code}: ${stderr.slice(0, 500)}`];
}

async function attemptShutdown(base: Base, kind: Kind, when: string): Promise<Outcome> {
  using directory = makeDirectory();
  const database = copyBase(base, directory);
  const server = await startReplica(database, {}, base.tokens);
  const acknowledged = nothingAcknowledged(base.users);
  for (let user = 0; user < 3; user += 1) {
    acknowledgeUser(acknowledged, await newUser(server));
  }
  const release = await inject(server.pid ?? 0, faultOf(kind, when, database));
  const code = await server.stop("SIGTERM");
  const injected = await release();
  const stderr = server.output.replaceAll(/^\{.*\n/gm, "");
  const lost = await findLost(database, acknowledged);
  return { injected, problems: [...problemsOfEnd(code, stderr), ...lost] };
}

/** Starts the program under strace, and waits until it listens or has exited: then its URL is `null`. */
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
    /** Ends the program. @returns the calls that failed */
    async end() {
      child.kill("SIGKILL");
      const lastLine = new RegExp(`^${child.pid} .*\\+\\+\\+ (?:exited|killed) .*$`, "m");
      for (;;) {
        const text = await Bun.file(trace).text();
        if (lastLine.test(text)) return readInjected(text);
        await Bun.sleep(2);
      }
    },
  };
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
    // SQLite forgets the I/O error of a file when it reads behind the end, as in an empty one.
    const shown = base === null ? stderr.replace(": the file is damaged", "") : stderr;
    problems.push(...problemsOfEnd(code, shown));
    if (code === 0) problems.push("it does not serve");
  } else {
    try {
      const body = { email: newEmail() };
      const response = await sendCall(url, token, "POST", "/users", { body });
      if (!noteCreated(response, acknowledged, problems)) acknowledged.inDoubt = 1;
    } catch (error) {
      problems.push(messageOf(error));
    }
  }
  const injected = await end();
  problems.push(...(await findLost(database, acknowledged)));
  return { injected, problems };
}

async function attemptCheck({ database }: TestServer, kind: Kind, when: string): Promise<Outcome> {
  const result = await runWithFault(faultOf(kind, when, database), database, ["check"]);
  const { code, stdout, stderr, injected } = result;
  const problems = problemsOfEnd(code, stderr);
  if (code === 0 && stdout !== "ok\n") problems.push(`it prints ${stdout}`);
  return { injected, problems };
}

async function attemptBackup({ database }: TestServer, kind: Kind, when: string): Promise<Outcome> {
  using target = makeDirectory();
  const copy = target.at("copy.db");
  const result = await runWithFault(faultOf(kind, when, database), database, ["backup", copy]);
  const { code, stderr, injected } = result;
  // The dynamic loader reads libraries with the same system call before the program starts.
  if (injected.some((call) => /\.so[.\d]* at /.test(call))) return { injected, problems: [] };
  // The journal of the copy is closed before SQLite can be asked for its error.
  const isJournal = injected.some((call) => call.includes("-journal"));
  const shown = isJournal ? stderr.replace(": database disk image is malformed", "") : stderr;
  const problems = problemsOfEnd(code, shown);
  const left = readdirSync(target.path);
  if (code === 0 && !isIntact(copy)) problems.push("the copy is damaged");
  if (left.length > (code === 0 ? 1 : 0)) problems.push(`it leaves ${left}`);
  return { injected, problems };
}

describe.skipIf(skipTraced)("with 60 users", () => {
  const base = useBase(60, true);

  test("serve starts or prints one error line when a system call fails on a new database", () =>
    failEachCall("first start", opening, (...fault) => attemptStart(null, ...fault)));

  test("serve starts or prints one error line when a system call fails after a crash", () =>
    failEachCall("start", opening, (...fault) => attemptStart(base(), ...fault)));

  test("serve keeps every acknowledged write when a system call fails during shutdown", () =>
    failEachCall("shutdown", [...writing, truncate], (...f) => attemptShutdown(base(), ...f)));

  test.each([
    ["check succeeds or prints one error line", [read, open, map], attemptCheck],
    ["backup leaves a complete copy or none", ofBackup, attemptBackup],
  ] as const)("%s when a system call fails", async (what, kinds, attempt) => {
    using directory = makeDirectory();
    await using server = await startReplica(copyBase(base(), directory), {}, base().tokens);
    await newUser(server);
    await failEachCall(what, kinds, (...fault) => attempt(server, ...fault));
    // The server must still work after a command failed next to it.
    await untilHealth(server, 200);
    await newUser(server);
  });
});
