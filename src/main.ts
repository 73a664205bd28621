/** Wires the command line to the world: the database, the output, the signals, the exit code. */
import { writeSync } from "node:fs";
import type { Io } from "./cli/io.ts";
import { runCommand } from "./cli/program.ts";
import { AppError, reason } from "./error.ts";
import { openSqlite } from "./sqlite/open.ts";

const STDOUT = 1;
const STDERR = 2;

/** Lines are written together: one system call for each would cost more than the request. */
const OUTPUT_DELAY_MS = 10;

function createOutput(descriptor: number) {
  let waiting = "";
  function flush(): void {
    let bytes = Buffer.from(waiting);
    waiting = "";
    while (bytes.length > 0) {
      try {
        bytes = bytes.subarray(writeSync(descriptor, bytes));
      } catch (error) {
        // A full pipe is waited for; a reader that has gone is not.
        if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) return;
        Bun.sleepSync(1);
      }
    }
  }
  return {
    flush,
    write(text: string): void {
      if (waiting === "") setTimeout(flush, OUTPUT_DELAY_MS);
      waiting += text;
    },
  };
}

/** Ctrl-C reaches a child of `bun run` twice: from the terminal and from its parent. */
const SAME_SIGNAL_MS = 200;

/** A second signal ends the process at once. */
function untilStopped(): Promise<unknown> {
  const { promise, resolve } = Promise.withResolvers<unknown>();
  let first_ms = Number.POSITIVE_INFINITY;
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, () => {
      if (performance.now() - first_ms > SAME_SIGNAL_MS) process.exit(1);
      first_ms = Math.min(first_ms, performance.now());
      resolve(null);
    });
  }
  // Bun would print and end: what is in flight must be finished and the database closed first.
  process.on("uncaughtException", resolve);
  process.on("unhandledRejection", resolve);
  return promise;
}

/** @returns the exit code */
export async function main(words: readonly string[], io: Io): Promise<number> {
  try {
    return await runCommand(words, io);
  } catch (error) {
    const operator = error instanceof AppError && error.code === "operator";
    const detail = error instanceof Error ? `\n${error.stack}` : "";
    io.stderr(operator ? `${error.message}\n` : `Unexpected error: ${reason(error)}${detail}\n`);
    return 1;
  }
}

if (import.meta.main) {
  const stdout = createOutput(STDOUT);
  const code = await main(Bun.argv.slice(2), {
    environment: Bun.env,
    openStore: openSqlite,
    now: () => new Date(),
    stdout: stdout.write,
    stderr: (text) => writeSync(STDERR, text),
    untilStopped,
  });
  stdout.flush();
  process.exit(code);
}
