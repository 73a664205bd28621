/** Wires the command line to the world: the database, the output, the signals, the exit code. */
import { isatty } from "node:tty";
import type { Io, StopReason, Terminal } from "./cli/context.ts";
import { runCommand } from "./cli/program.ts";
import { isReaderGone, openInput, openOutput, writeFully, writeSome } from "./cli/streams.ts";
import { isPostgres } from "./config.ts";
import { AppError, messageOf, systemCode } from "./error.ts";
import { createLogBuffer } from "./log-buffer.ts";
import { openPostgres } from "./postgres/backend.ts";
import { restorePostgres } from "./postgres/backup.ts";
import { withPostgresCopyTarget } from "./postgres/copy-target.ts";
import { openSqlite } from "./sqlite/backend.ts";
import { withSqliteCopyTarget } from "./sqlite/copy-target.ts";
import { describeSqliteError } from "./sqlite/errors.ts";
import { restoreSqlite } from "./sqlite/restore.ts";
import type { OpenStore, RestoreStore, WithCopyTarget } from "./store.ts";

const STDOUT = 1;
const STDERR = 2;

/** Lines are written together: one system call for each would cost more than the request. */
const OUTPUT_DELAY_MS = 10;

/**
 * The output of a command, which is complete: it waits for a slow reader. An error is remembered for the exit
 * code, not thrown.
 */
function createOutput(descriptor: number) {
  let buffered = "";
  let failed = false;
  function flush(): void {
    const text = buffered;
    buffered = "";
    try {
      writeFully(descriptor, text);
    } catch (error) {
      failed ||= !isReaderGone(error);
    }
  }
  return {
    /** @returns whether all has been written */
    async finish(): Promise<boolean> {
      flush();
      return !failed;
    },
    write(text: string): void {
      if (buffered === "") setTimeout(flush, OUTPUT_DELAY_MS);
      buffered += text;
    },
  };
}

/** @param write where the lines of stderr go as well, so that both come in order */
function findTerminal(write: (text: string) => void): Terminal | null {
  // Not asked of process.stderr, which would make a stream of whatever it is first.
  if (!isatty(STDERR)) return null;
  return { isTTY: true, columns: process.stderr.columns, write };
}

/** Ctrl-C reaches a child of `bun run` twice: from the terminal and from its parent. */
const SAME_SIGNAL_MS = 200;

/** A second signal ends the process at once. */
function untilStopped(): Promise<StopReason> {
  const { promise, resolve } = Promise.withResolvers<StopReason>();
  let first_ms = Number.POSITIVE_INFINITY;
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, () => {
      if (performance.now() - first_ms > SAME_SIGNAL_MS) process.exit(1);
      first_ms = Math.min(first_ms, performance.now());
      resolve({ by: "signal", signal });
    });
  }
  // Bun would print and end: what is in flight must be finished and the database closed first.
  const onUncaught = (error: unknown) => resolve({ by: "fault", error });
  process.on("uncaughtException", onUncaught);
  process.on("unhandledRejection", onUncaught);
  return promise;
}

export const openStore: OpenStore = (options) =>
  isPostgres(options.database_url) ? openPostgres(options) : openSqlite(options);

export const restoreStore: RestoreStore = (options) =>
  isPostgres(options.database_url) ? restorePostgres(options) : restoreSqlite(options);

export const withCopyTarget: WithCopyTarget = (options, work) =>
  isPostgres(options.database_url)
    ? withPostgresCopyTarget(options, work)
    : withSqliteCopyTarget(options, work);

/**
 * @returns the line for the operator; `null` if the error is a bug. Damage can surface in any statement, so that
 * not every one of them explains it.
 */
function expectedMessage(error: unknown): string | null {
  const is_sqlite = systemCode(error).startsWith("SQLITE_");
  const known = is_sqlite ? describeSqliteError("Cannot use the database", error) : error;
  return known instanceof AppError ? messageOf(known) : null;
}

/** @returns the exit code */
export async function main(args: readonly string[], io: Io): Promise<number> {
  try {
    return await runCommand(args, io);
  } catch (error) {
    const expected = expectedMessage(error);
    io.stderr(`${expected ?? `Unexpected error: ${messageOf(error)}`}\n`);
    // One line says it to an operator; who looks for the fault in the program asks for more.
    const stack = error instanceof Error && expected === null ? error.stack : undefined;
    if (stack !== undefined && io.environment["LOG_LEVEL"] === "debug") io.stderr(`${stack}\n`);
    return 1;
  }
}

if (import.meta.main) {
  const words = Bun.argv.slice(2);
  const stdout = createOutput(STDOUT);
  const log = createLogBuffer((bytes) => writeSome(STDOUT, bytes));
  // Often the same pipe as the log: a server must not wait for its reader either.
  const stderr =
    words[0] === "serve"
      ? createLogBuffer((bytes) => writeSome(STDERR, bytes))
      : createOutput(STDERR);
  const code = await main(words, {
    environment: Bun.env,
    openStore,
    restoreStore,
    withCopyTarget,
    stdout_is_terminal: isatty(STDOUT),
    now: () => new Date(),
    stdout: stdout.write,
    stderr: stderr.write,
    log,
    terminal: findTerminal(stderr.write),
    openInput,
    openOutput,
    untilStopped,
  });
  const written = (await stdout.finish()) && (await log.finish());
  if (!written) stderr.write("Cannot write the output\n");
  process.exit((await stderr.finish()) && written ? code : 1);
}
