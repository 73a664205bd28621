/** What the parts of the archive of an open database share. */
import { AppError } from "../../base/error.ts";
import type { ArchiveLog, ArchiveSettings, ArchiveState } from "../../domain/archive.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import type { Problems } from "./problems.ts";
import type { ProgressReader } from "./progress.ts";
import type { Clock } from "./still.ts";

/** Cause of an error of the archive: the database itself may be sound. */
export const ARCHIVE_CAUSE = "archive";
/** Cause of an error of a start whose database and archive have different histories. */
export const DIVERGED = "archive diverged";
/** Cause of an error after which the copy of a standby must be restored. */
export const COPY_BROKEN = "archive copy broken";
/** @see ARCHIVE_CAUSE */
export const archiveCauses = [ARCHIVE_CAUSE, DIVERGED, COPY_BROKEN] as const;

/** @returns whether it is an error after which nothing continues the copy of a standby */
export function endsCopy(error: unknown): boolean {
  return error instanceof AppError && (error.cause === COPY_BROKEN || error.cause === DIVERGED);
}

/** Nothing continues the copy of a standby. @throws {AppError} unavailable */
export function failCopyBroken(reason: string): never {
  throw new AppError("unavailable", reason, { cause: COPY_BROKEN });
}

/** @returns whether an error has one of these causes */
export function isOfArchive(error: unknown): error is AppError {
  return error instanceof AppError && archiveCauses.some((cause) => cause === error.cause);
}

/** Which server this is, and how it waits. */
export interface ServerContext {
  /** Path of the database without symbolic links: its other files are next to it. */
  readonly path: string;
  readonly storage: ObjectStorage;
  /** Names this server for operators. */
  readonly holder: string;
  readonly clock: Clock;
  readonly nowMs: () => number;
  /** Ends what waits for another server. */
  readonly signal: AbortSignal;
  readonly log: ArchiveLog;
}

/** @see ArchiveState. `heldForMs` is how much longer it is held; not positive if it is not. */
export type ArchiveReport = Omit<ArchiveState, "isHeld" | "isReachable"> & {
  readonly heldForMs: number;
};

/** Options of an archiver, whose database stays open. */
export interface ArchiverOptions
  extends ServerContext,
    Pick<ArchiveSettings, "intervalMs" | "keepMs" | "commit" | "takeoverMs" | "standby"> {
  readonly files: FileDescriptors;
  /** A text that no other running process has: see identity.ts. */
  readonly identity: string;
  /** While the storage is unreachable, the WAL keeps what is missing up to this size, or half of the free space. */
  readonly maxWalBytes: number;
  /** Called when the archive has all commits up to this ticket. */
  readonly onConfirmed: (ticket: number) => void;
  readonly onState: (state: ArchiveReport) => void;
  /** Called once, when another server has the archive. */
  readonly onSuperseded: (reason: string) => void;
}

export interface ArchiveContext extends ArchiverOptions {
  readonly progress: ProgressReader;
  readonly problems: Problems;
  /** @see createSettledClock */
  readonly settledMs: () => number;
  /** Ticket of the last counted commit. */
  lastTicket: number;
  /** Whether parts of the WAL since the end of the archive are known to be lost. */
  hasGap: boolean;
}
