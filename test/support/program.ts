/** Runs programs, such as the compiled one, and collects their output. */
import { tmpdir } from "node:os";

/** Path of the compiled program; empty if it is not tested. */
export const binary: string = Bun.env["TEST_BINARY"] ?? "";

/** The line of the log, with the address. */
export const LISTENING: RegExp = /"event":"listening","url":"([^"]+)"/;

export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

interface Options {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
}

export type Running = ReturnType<typeof startProgram>;

export function startProgram(command: readonly string[], options: Options = {}) {
  const { env = {}, cwd = tmpdir() } = options;
  const child = Bun.spawn([...command], { env, cwd, stdout: "pipe", stderr: "pipe" });
  const listening = Promise.withResolvers<string | null>();
  let output = "";
  let url: string | undefined;

  async function collect(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<string> {
    const decoder = new TextDecoder();
    let collected = "";
    for await (const chunk of stream) {
      const text = decoder.decode(chunk, { stream: true });
      collected += text;
      output += text;
      url ??= LISTENING.exec(output)?.[1];
      if (url !== undefined) listening.resolve(url);
    }
    return collected;
  }

  async function end(): Promise<Outcome> {
    const [stdout, stderr] = await Promise.all([collect(child.stdout), collect(child.stderr)]);
    const code = await child.exited;
    listening.resolve(null);
    return { code, stdout, stderr };
  }

  return {
    pid: child.pid,
    kill: (signal: NodeJS.Signals) => child.kill(signal),
    hasExited: () => child.exitCode !== null || child.signalCode !== null,
    output: () => output,
    /** Where `serve` listens; `null` if it has exited instead. */
    listening: listening.promise,
    ended: end(),
  };
}

export function runProgram(command: readonly string[], options: Options = {}): Promise<Outcome> {
  return startProgram(command, options).ended;
}

/** Runs a command of the compiled program. @param env all environment variables */
export function runBinary(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  return runProgram([binary, ...args], { env });
}
