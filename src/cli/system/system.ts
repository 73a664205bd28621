import type { Clock } from "../../base/clock.ts";
import { AppError, messageOf } from "../../base/error.ts";
import type { LogBuffer } from "../../base/log-buffer.ts";
import type { Environment } from "../../base/secret.ts";
import type { Config, Flags } from "../../domain/config.ts";
import type { OpenStorage } from "../../domain/object-storage.ts";
import type { ArchiveCommands, Backend, Store, StoreOptions } from "../../domain/store.ts";
import type * as sockets from "./sockets.ts";

/** Why the process should stop: a signal, or an error that nothing else caught. */
export type StopReason =
  | { readonly by: "signal"; readonly signal: string }
  | { readonly by: "fault"; readonly error: unknown };

/** A file, device or pipe. A file appears under its name only when it is complete. */
export interface OutputStream extends Disposable {
  write(text: string): void;
  finish(): void;
}

export interface System {
  /** The command that started this program, e.g. `./user-api`. */
  readonly program: string;
  readonly environment: Environment;
  readonly backendOf: (databaseUrl: string) => Backend;
  readonly archive: ArchiveCommands;
  readonly schemaVersions: Readonly<Record<"SQLite" | "PostgreSQL", number>>;
  readonly openStorage: OpenStorage;
  readonly createArchiveWorker: () => Worker;
  readonly stdoutIsTerminal: boolean;
  readonly now: () => Date;
  readonly clock: Clock;
  /** Waits for a slow reader. @throws {AppError} operator; output_closed if the reader has closed stdout */
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** Opens the log on stdout, for a server, which must not wait for its readers. Then stderr does not block either. */
  readonly openLog: () => Omit<LogBuffer, "finish">;
  /** Opens the file, or stdin if the path is `null`. @returns chunks of any size. @throws {AppError} operator */
  readonly openInput: (path: string | null) => AsyncIterable<Uint8Array>;
  /** @param force overwrites a file, but none of the database. @throws {AppError} operator; usage if the path is empty */
  readonly openOutput: (path: string, force: boolean, databaseUrl: string) => OutputStream;
  /** @returns a lock, by a file next to this one, until the process ends; `null` if another process has it */
  readonly lockFile: (path: string) => Disposable | null;
  readonly untilStopped: () => Promise<StopReason>;
  /** Calls the listener at every SIGHUP, which ends the process before the first call. */
  readonly onHangup: (listener: () => void) => void;
  /** Memory that this process may use: of its control group, or of the machine. */
  readonly memoryBytes: number;
  readonly sockets: typeof sockets;
}

export interface CommandSystem extends System {
  readonly flags: Flags;
  /** The settings that the command uses; the others have their default. */
  readonly config: Config;
  /** The database, for messages: without its password. */
  readonly database: string;
}

export interface JsonOption {
  readonly json?: boolean;
}

/** @param value for `--json`, as docs/command-line.md describes it */
export function printResult(system: System, json = false, value: object, text: string): void {
  system.stdout(json ? `${JSON.stringify(value)}\n` : text);
}

export function nameDatabase(error: unknown, { database }: CommandSystem): unknown {
  if (!(error instanceof AppError)) return error;
  // The messages of others name it, if it matters.
  if (error.code !== "unavailable" && error.code !== "damaged") return error;
  return new AppError("operator", `Cannot use ${database}: ${messageOf(error)}`);
}

/** @param use by default, a command writes to a database that exists. @throws the error of the work, also if closing fails */
export async function withStore<Result>(
  system: CommandSystem,
  use: Partial<Omit<StoreOptions, "archive" | "databaseUrl" | "now">>,
  work: (store: Store) => Promise<Result>,
): Promise<Result> {
  const { config } = system;
  const { open, watchArchive } = system.backendOf(config.databaseUrl);
  const store = await open({
    ...config,
    create: false,
    mode: "write",
    now: system.now,
    // In a wrong directory, a command would otherwise silently create a database that no server uses.
    onMigration: () => system.stderr(`Created the database ${system.database}\n`),
    ...use,
  });
  const untilArchived = use.mode === undefined ? watchArchive(config.databaseUrl) : null;
  const result = await Promise.try(work, store).catch(async (error: unknown) => {
    await store.close().catch(() => {});
    throw nameDatabase(error, system);
  });
  await store.close();
  if ((await untilArchived?.()) === false)
    system.stderr(
      "The archive does not have the write until the server has sent it, or without a server, until the next start has written a base\n",
    );
  return result;
}

/** @returns aborts when the process should stop; the reason is the error to throw, which names an uncaught error */
export function stopSignal({ untilStopped }: Pick<System, "untilStopped">): AbortSignal {
  const abort = new AbortController();
  void untilStopped().then((stop) =>
    abort.abort(stop.by === "signal" ? new AppError("operator", "interrupted") : stop.error),
  );
  return abort.signal;
}
