/** What the parts of the archive of an open database share. */
import { AppError, messageOf } from "../../base/error.ts";
import type {
  ArchiveLog,
  ArchiveOptions,
  ArchiveSettings,
  ArchiveState,
} from "../../domain/archive.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import type { DatabaseFiles, Machine, OpenDatabase, ProgressReader, WalPin } from "./machine.ts";
import type { Problems } from "./problems.ts";
import type { WriteState } from "./write-state.ts";

/** Cause of an error of the archive: the database itself may be sound. */
export const ARCHIVE_CAUSE = "archive";
/** Cause of an error of a start whose database and archive have different histories. */
export const DIVERGED = "archive diverged";
/** Cause of an error after which the copy of a standby must be restored. */
export const COPY_BROKEN = "archive copy broken";
/** Cause of an error that stops a start: the settings, a storage that cannot have an archive, or another archive. */
export const UNUSABLE = "archive unusable";
export const archiveCauses = [ARCHIVE_CAUSE, DIVERGED, COPY_BROKEN, UNUSABLE] as const;

export function endsCopy(error: unknown): boolean {
  return error instanceof AppError && (error.cause === COPY_BROKEN || error.cause === DIVERGED);
}

export function failCopyBroken(reason: string): never {
  throw new AppError("unavailable", reason, { cause: COPY_BROKEN });
}

export function isOfArchive(error: unknown): error is AppError {
  return error instanceof AppError && archiveCauses.some((cause) => cause === error.cause);
}

/** Which server this is, and how it waits. */
export interface ServerContext {
  readonly files: DatabaseFiles;
  readonly storage: ObjectStorage;
  readonly machine: Machine;
  /** Ends what waits for another server. */
  readonly signal: AbortSignal;
  readonly log: ArchiveLog;
  readonly onWaiting?: ArchiveOptions["onWaiting"];
}

/** @see ArchiveState. `heldForMs` is how much longer it is held; not positive if it is not. */
export type ArchiveReport = Omit<ArchiveState, "isHeld" | "isReachable"> & {
  readonly heldForMs: number;
};

export interface ArchiverOptions
  extends ServerContext,
    Pick<ArchiveSettings, "intervalMs" | "keepMs" | "commit" | "takeoverMs" | "standby"> {
  readonly database: OpenDatabase;
  readonly writes: WriteState;
  /** While the storage is unreachable, the WAL keeps what is missing up to this size, or half of the free space. */
  readonly maxWalBytes: number;
  /** Called when the archive has all commits up to this ticket. */
  readonly onConfirmed: (ticket: number) => void;
  readonly onState: (state: ArchiveReport) => void;
  /** Called once, when another server has the archive. */
  readonly onSuperseded: (reason: string) => void;
}

export interface ArchiveContext extends ArchiverOptions {
  readonly identity: string;
  readonly walPin: WalPin;
  readonly progress: ProgressReader;
  readonly problems: Problems;
  readonly settledMs: () => number;
  /** Ticket of the last counted commit. */
  lastTicket: number;
  /** Aborted when the archive was closed, or is that of another server. */
  readonly ending: AbortController;
  isStarted: boolean;
  /** When an unexpected error last ended a generation, and until when no other one begins, by the monotonic clock. */
  failedMs: number;
  pausedUntilMs: number;
  /** The last look for what a standby could not read; `null` before the first one. */
  lack: { readonly key: string; readonly lookedMs: number; readonly isLost: boolean } | null;
  /** The archive has all commits up to this time, by the monotonic clock; `null` before the first confirmation. */
  completeUntilMs: number | null;
  readonly createdMs: number;
  bytesBehind: number;
  /** No other server can have taken over before this time, by the monotonic clock. */
  heldUntilMs: number;
  /** Whether parts of the WAL since the end of the archive are known to be lost. */
  hasGap: boolean;
}

export function isOver({ ending }: ArchiveContext): boolean {
  return ending.signal.aborted;
}

/** @returns why the archive cannot be kept up to date; `null` if it can */
export function problemOf({ ending: { signal }, problems }: ArchiveContext): string | null {
  return signal.aborted ? messageOf(signal.reason) : problems.current();
}
