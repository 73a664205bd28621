import type { Environment } from "../config.ts";
import type { LogBuffer } from "../log-buffer.ts";
import type { OpenStore, RestoreStore, WithCopyTarget } from "../store.ts";

/** Why a server ends: it was asked to, or something went wrong that nothing else caught. */
export type StopReason =
  | { readonly by: "signal"; readonly signal: string }
  | { readonly by: "fault"; readonly error: unknown };

/** What comes in, in pieces of any size. */
export interface InputStream {
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Bytes; `null` when nobody knows, as of a pipe. */
  readonly size: number | null;
}

/** Where much goes out. A file is there under its name when it is whole, and not before. */
export interface OutputStream extends Disposable {
  /** Waits for a slow reader. @returns false when the reader has gone, and no more is wanted */
  write(text: string): boolean;
  /** To be called when all has been written. */
  finish(): void;
}

/** What a progress bar needs of a terminal. */
export interface Terminal {
  readonly isTTY: true;
  /** Characters in a line. */
  readonly columns: number;
  readonly write: (text: string) => void;
}

/** What a command needs of the world: so that a test can be that world. */
export interface Io {
  readonly environment: Environment;
  readonly openStore: OpenStore;
  readonly restoreStore: RestoreStore;
  readonly withCopyTarget: WithCopyTarget;
  /** Whether a person reads what is printed on stdout. */
  readonly stdout_is_terminal: boolean;
  readonly now: () => Date;
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** Where `serve` writes its log, instead of `stdout`: it does not wait for the reader. */
  readonly log: Omit<LogBuffer, "finish">;
  /** stderr as a terminal; `null` where it is none. */
  readonly terminal: Terminal | null;
  /** The file; stdin where the path is `null`. @throws {AppError} operator */
  readonly openInput: (path: string | null) => InputStream;
  /** The file; stdout where the path is `null`. @throws {AppError} operator */
  readonly openOutput: (path: string | null) => OutputStream;
  /** From the call on, watches for what is to end the process. */
  readonly untilStopped: () => Promise<StopReason>;
}
