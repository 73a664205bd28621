/** Connects the command line to the databases, the output, the signals and the exit code. */

import { isatty } from "node:tty";
import { systemClock } from "./base/clock.ts";
import { isPostgres } from "./base/database-url.ts";
import { AppError, fail, fileProblem, messageOf, systemCode } from "./base/error.ts";
import { createLogBuffer } from "./base/log-buffer.ts";
import { escapeInvisible } from "./base/readable-text.ts";
import { runCommand } from "./cli/program.ts";
import * as sockets from "./cli/system/sockets.ts";
import { openInput, openOutput, writeOutput, writeSome } from "./cli/system/streams.ts";
import type { StopReason, System } from "./cli/system/system.ts";
import type { Backend } from "./domain/store.ts";
import { openStorage } from "./object-storage/open.ts";
import { openPostgres } from "./postgres/backend.ts";
import { withPostgresCopyTarget } from "./postgres/whole/copy.ts";
import { distributePostgres, migrations } from "./postgres/whole/migrate.ts";
import { backUpSqlite, openSqlite } from "./sqlite/backend.ts";
import { watchArchive } from "./sqlite/disk/marker.ts";
import { describeSqliteError } from "./sqlite/file/errors.ts";
import { SCHEMA_VERSION } from "./sqlite/file/migrate.ts";
import { isServed, takeServerLock } from "./sqlite/file/server-lock.ts";
import { sqliteArchive } from "./sqlite/whole/archive.ts";
import { withSqliteCopyTarget } from "./sqlite/whole/copy.ts";
import { restoreSqlite } from "./sqlite/whole/restore.ts";

const STDOUT = 1;
const STDERR = 2;

/** Exit code of a program that SIGPIPE has ended, by convention of shells. Bun ignores the signal. */
const SIGPIPE_EXIT_CODE = 128 + 13;

/** Waits for a slow reader. */
function writeMessage(text: string): void {
  try {
    writeOutput("stderr", STDERR, text);
  } catch {
    // There is nowhere else to report it.
  }
}

/** The output of a server, which never waits for its readers. */
function createServerOutput() {
  let last: Promise<unknown> = Promise.resolve();
  const bufferOf = (descriptor: number) =>
    createLogBuffer((bytes) => {
      // One at a time: Bun has only two threads for it on a small machine, and two stalled readers would block both.
      const result = last.then(() => writeSome(descriptor, bytes));
      last = result.catch(() => {});
      return result;
    });
  return { log: bufferOf(STDOUT), stderr: bufferOf(STDERR) };
}

/** A child of `bun run` receives Ctrl-C twice: from the terminal and from its parent. */
const SAME_SIGNAL_MS = 200;

/** A second signal ends the process immediately. Signals that mean something to other servers are ignored. */
function untilStopped(): Promise<StopReason> {
  const { promise, resolve } = Promise.withResolvers<StopReason>();
  let firstMs = Number.POSITIVE_INFINITY;
  for (const signal of ["SIGUSR1", "SIGUSR2", "SIGALRM"] as const) process.on(signal, () => {});
  for (const signal of ["SIGTERM", "SIGINT", "SIGQUIT"] as const) {
    process.on(signal, () => {
      if (performance.now() - firstMs > SAME_SIGNAL_MS) process.exit(1);
      firstMs = Math.min(firstMs, performance.now());
      resolve({ by: "signal", signal });
    });
  }
  // By default Bun prints the error and exits. Open requests and the database need a clean end.
  const onUncaught = (error: unknown) => resolve({ by: "fault", error });
  process.on("uncaughtException", onUncaught);
  process.on("unhandledRejection", onUncaught);
  return promise;
}

const sqlite: Backend = {
  open: openSqlite,
  backUp: backUpSqlite,
  restore: restoreSqlite,
  withCopyTarget: withSqliteCopyTarget,
  distribute: null,
  isServed,
  watchArchive,
};

async function rejectPostgres(): Promise<never> {
  fail("operator", "Use `pg_dump` and `pg_restore` for PostgreSQL");
}

const postgres: Backend = {
  open: openPostgres,
  backUp: rejectPostgres,
  restore: rejectPostgres,
  withCopyTarget: withPostgresCopyTarget,
  distribute: distributePostgres,
  // Servers cannot be told from commands by their connections.
  isServed: () => false,
  watchArchive: () => async () => true,
};

export function backendOf(databaseUrl: string): Backend {
  return isPostgres(databaseUrl) ? postgres : sqlite;
}

export const schemaVersions = { SQLite: SCHEMA_VERSION, PostgreSQL: migrations.length };

export function createArchiveWorker(): Worker {
  // The worker is in the same directory in the source and in the binary: see `--entry-naming` in scripts/build.sh.
  return new Worker(new URL("./archive.worker.ts", import.meta.url).href);
}

/** @returns the message for the operator; `null` for a bug. Any statement can meet damage, and any read of a file can fail. */
function expectedMessage(error: unknown): string | null {
  const isOfFile = systemCode(error).startsWith("SQLITE_") || fileProblem(error) !== null;
  const known = isOfFile ? describeSqliteError("Cannot use the database", error) : error;
  return known instanceof AppError ? messageOf(known) : null;
}

export async function main(args: readonly string[], system: System): Promise<number> {
  try {
    return await runCommand(args, system);
  } catch (error) {
    if (error instanceof AppError && error.code === "output_closed") return SIGPIPE_EXIT_CODE;
    const expected = expectedMessage(error);
    const message = expected ?? `Unexpected error: ${messageOf(error)}`;
    system.stderr(`${escapeInvisible(message)}\n`);
    // One line is enough for an operator. Developers set LOG_LEVEL=debug.
    const stack = error instanceof Error && expected === null ? error.stack : undefined;
    if (stack !== undefined && system.environment["LOG_LEVEL"] === "debug")
      system.stderr(`${stack}\n`);
    return 1;
  }
}

if (import.meta.main) {
  // Before any file is created: databases, backups and exports hold personal data.
  process.umask(0o077);
  const server = createServerOutput();
  let stderr = writeMessage;
  const code = await main(Bun.argv.slice(2), {
    program: Bun.main.startsWith("/$bunfs/") ? process.argv0 : "scripts/bun.sh src/main.ts",
    environment: Bun.env,
    backendOf,
    archive: sqliteArchive,
    schemaVersions,
    openStorage,
    createArchiveWorker,
    stdoutIsTerminal: isatty(STDOUT),
    now: () => new Date(),
    clock: systemClock,
    stdout: (text) => writeOutput("the output", STDOUT, text),
    stderr: (text) => stderr(text),
    openLog() {
      stderr = server.stderr.write;
      return server.log;
    },
    openInput,
    openOutput,
    lockFile: (path) => takeServerLock(path),
    untilStopped,
    onHangup: (listener) => process.on("SIGHUP", listener),
    memoryBytes: process.constrainedMemory() || Number.POSITIVE_INFINITY,
    sockets,
  });
  const written = await server.log.finish();
  if (!written && code === 0) stderr("Cannot write the output\n");
  await server.stderr.finish();
  process.exit(written ? code : 1);
}
