/** Traces the binary, and makes its system calls fail, with strace. */
import { basename } from "node:path";
import { makeDirectory } from "../support/directory.ts";
import { binary, runProgram } from "../support/program.ts";

function findObstacle(): string | null {
  if (binary === "") return "there is no TEST_BINARY";
  if (process.platform !== "linux") return "strace is for Linux";
  if (Bun.which("strace") === null) return "there is no strace";
  const probe = Bun.spawnSync(["strace", "-o", "/dev/null", "true"]);
  return probe.success ? null : "strace has no permission to trace here";
}

/** Why the program cannot be traced; `null` if it can. */
const obstacle: string | null = findObstacle();

/** On CI, tests that need strace fail without it, so that they are not skipped unnoticed. */
export const skipTraced: boolean =
  obstacle !== null && !(Bun.env["CI"] === "true" && binary !== "" && process.platform === "linux");

export interface Fault {
  readonly calls: string;
  /** The error that they return, e.g. `EIO`. */
  readonly error: string;
  /**
   * `3` for the third call, `3..4` for the third and the fourth, `3+` for the third and all later ones; by default all.
   * strace counts each system call and each thread by itself.
   */
  readonly when?: string;
  /** Only calls on these files are counted and fail; by default all. */
  readonly paths?: readonly string[];
}

function optionsOf(fault: Fault, trace: string): string[] {
  const { calls, error, when, paths = [] } = fault;
  const selected = when === undefined ? "" : `:when=${when}`;
  const inject = `inject=${calls}:error=${error}${selected}`;
  const only = paths.flatMap((path) => ["-P", path]);
  // -s: the data that is read and written is not needed.
  const output = ["-f", "-q", "-y", "-s", "0", "-o", trace];
  return [...output, ...only, "-e", `trace=${calls}`, "-e", inject];
}

/** Options of strace for a program that it starts. @param trace the file to write the calls to */
export function startOptionsOf(fault: Fault, trace: string): string[] {
  // The program stops at the calls of the fault only, and starts in two thirds of the time.
  return ["--seccomp-bpf", ...optionsOf(fault, trace)];
}

/** @returns the calls that failed, e.g. `pread64(test.db, 4096, 8192) EIO` */
export function readInjected(trace: string): string[] {
  return trace.split("\n").flatMap((line) => {
    const [, call] = /^\d+ +(.*) \(INJECTED\)$/.exec(line) ?? [];
    if (call === undefined) return [];
    const name = /\w+/.exec(call)?.[0];
    const file = basename(/["<](\/[^">]+)[">]/.exec(call)?.[1] ?? "");
    const offset = / (\d+)\) /.exec(call)?.[1];
    const error = / = -1 (\w+)/.exec(call)?.[1];
    const at = name?.startsWith("p") && offset !== undefined ? ` at ${offset}` : "";
    return [`${name} of ${file}${at}: ${error}`];
  });
}

/** Runs a command with a fault. @returns its outcome, and the calls that failed */
export async function runWithFault(fault: Fault, database: string, args: readonly string[]) {
  using directory = makeDirectory();
  const trace = directory.at("trace");
  const command = ["strace", ...startOptionsOf(fault, trace), binary, ...args];
  const outcome = await runProgram(command, { env: { DATABASE_URL: database } });
  return { ...outcome, injected: readInjected(await Bun.file(trace).text()) };
}

/**
 * Makes system calls of a running program fail.
 * @returns a function that removes the fault and returns the calls that failed
 */
export async function inject(pid: number, fault: Fault): Promise<() => Promise<string[]>> {
  const directory = makeDirectory();
  const trace = directory.at("trace");
  const command = ["strace", "-p", `${pid}`, ...optionsOf(fault, trace)];
  const strace = Bun.spawn(command, { stderr: "pipe" });
  // strace does not report when it is attached.
  while (!(await Bun.file(`/proc/${pid}/status`).text()).includes(`TracerPid:\t${strace.pid}`)) {
    if (strace.exitCode !== null) throw new Error(await strace.stderr.text());
    await Bun.sleep(1);
  }
  return async () => {
    strace.kill("SIGINT");
    await strace.exited;
    using _ = directory;
    return readInjected(await Bun.file(trace).text());
  };
}
