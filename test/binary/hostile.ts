/** Runs commands on what others have made: files, archives, answers of servers. */
import { expect } from "bun:test";
import { lstatSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { join } from "node:path";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { watchPeakMemory } from "../support/peak-memory.ts";
import { binary, startProgram } from "../support/program.ts";
import { makeRandom } from "../support/random.ts";
import { skipTraced } from "./strace.ts";

const MAX_BYTES = 300e6;
/** A command that runs for longer does not end. On a busy machine it has more time. */
const MAX_MS = 60_000;

/** What a terminal would obey. */
export const escapes = "\x1b]0;owned\x07\x1b[2J\r\u009b31m\u202e";

interface Run {
  readonly what: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The exit codes that are right. Default: 1. */
  readonly codes?: readonly number[];
  /** Lines on stderr, at most. Default: 1. */
  readonly maxLines?: number;
  /** What the command may write in its directory. */
  readonly made?: RegExp;
  /** Puts files into the directory before the command starts. */
  readonly prepare?: (directory: string) => unknown;
}

function treeOf(directory: string): string[] {
  return readdirSync(directory).map((name) => {
    const { mode, size, mtimeMs } = lstatSync(join(directory, name));
    return `${name} ${mode} ${size} ${mtimeMs}`;
  });
}

/** Runs a command in a directory: it ends soon, says one line, and does nothing else. */
export async function expectHarmless(run: Run): Promise<void> {
  const { what, args, env, codes = [1], maxLines = 1, made = /^$/, prepare } = run;
  using at = makeDirectory();
  const [data, elsewhere, trace] = [at.at("data"), at.at("elsewhere"), at.at("trace")];
  for (const each of [data, elsewhere]) mkdirSync(each);
  await prepare?.(data);
  const before = { data: readdirSync(data), elsewhere: treeOf(elsewhere) };
  // With -D, the program is the child of this process.
  const options = ["-D", "-f", "-q", "--seccomp-bpf", "-e", "trace=execve,execveat", "-o", trace];
  const tracer = skipTraced ? [] : ["strace", ...options];
  const child = startProgram([...tracer, binary, ...args], {
    env: { DATABASE_URL: "a.db", PORT: "0", ...env },
    cwd: data,
  });
  using memory = watchPeakMemory(child.pid);
  const busy = Math.max(1, (loadavg()[0] ?? 0) / availableParallelism());
  const timer = setTimeout(() => child.kill("SIGKILL"), MAX_MS * busy);
  // If it serves, a request must not end it either.
  const url = await child.listening;
  if (url !== null) await fetch(`${url}/api/v1/health`);
  child.kill(url === null ? "SIGCONT" : "SIGTERM");
  const { code, stdout, stderr } = await child.ended;
  clearTimeout(timer);
  const message = `${what}: ${args.join(" ")}: ${stdout.slice(0, 999)}${stderr.slice(0, 999)}`;
  expect(codes, message).toContain(code);
  expect(stderr.split("\n").length - 1, message).toBeWithin(code === 0 ? 0 : 1, maxLines + 1);
  expect(stderr, message).not.toMatch(/(?!\n)\p{Cc}|\p{Cf}|^ +at |Unexpected error/mu);
  expect(memory.bytes(), message).toBeLessThan(MAX_BYTES);
  expect(treeOf(elsewhere), message).toEqual(before.elsewhere);
  expect(readdirSync(at.path).sort(), message).toEqual([
    "data",
    "elsewhere",
    ...(skipTraced ? [] : ["trace"]),
  ]);
  const more = readdirSync(data).filter((name) => !before.data.includes(name) && !made.test(name));
  expect(more, message).toEqual([]);
  if (!skipTraced) expect(readFileSync(trace, "utf8").match(/execve/g), message).toHaveLength(1);
}

/** Runs work for the inputs, some at the same time. A short run takes every twelfth, and CI every third. */
export async function forEachInput<Input>(
  jobs: number,
  inputs: readonly Input[],
  work: (input: Input, at: number) => Promise<void>,
): Promise<void> {
  const queue = inputs.filter((_, at) => at % (isLong ? 3 : 12) === 0).entries();
  const runRest = async () => {
    for (const [at, input] of queue) await work(input, at);
  };
  await Promise.all(Array.from({ length: jobs }, runRest));
}

/** @returns how to pick one of some values, differently for each seed from 0 */
export function makePicker(seed: number) {
  const random = makeRandom(seed + 1);
  // The first numbers of neighbouring seeds are alike.
  for (let count = 0; count < 10; count += 1) random(2);
  return {
    random,
    pick: <Value>(values: readonly Value[]): Value => values[random(values.length)] as Value,
  };
}
