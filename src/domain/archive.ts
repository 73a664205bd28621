/** The archive of a database: a continuous copy in object storage. */
import type { Environment } from "../base/secret.ts";

/** When a write is acknowledged: when it is on the disk, or when the archive has it. */
export const archiveCommits = ["async", "sync"] as const;
export type ArchiveCommit = (typeof archiveCommits)[number];

export const archiveRestores = ["never", "if-missing"] as const;

export type ArchiveLog = (
  level: "info" | "warn" | "error",
  event: string,
  fields?: Readonly<Record<string, string | number | boolean>>,
) => void;

export interface ArchiveSettings {
  readonly url: string;
  readonly environment: Environment;
  readonly restore: (typeof archiveRestores)[number];
  /** Maximum age of a commit that the archive lacks, if an upload takes at most a quarter of it. */
  readonly intervalMs: number;
  readonly commit: ArchiveCommit;
  readonly keepMs: number;
  readonly standby: boolean;
  /** How long log and heartbeat of another server stand still before a standby takes over. */
  readonly takeoverMs: number;
  /** Whether another server has taken over from this process: then it waits longer before it takes over again. */
  readonly wasSuperseded: boolean;
  /** Whether this process has reached the storage with these settings, which need not be tried again. */
  readonly wasReached?: boolean;
}

export interface ArchiveOptions extends ArchiveSettings {
  readonly createWorker: () => Worker;
  readonly onLog: ArchiveLog;
  /** Called once if the thread has ended because of a bug. The archive stays as it is until the program starts again. */
  readonly onStopped: (error: Error) => void;
  readonly onSuperseded: (error: Error) => void;
  /** Called with what the server waits for, in words for its clients as well; `null` when it no longer waits. */
  readonly onWaiting?: ((what: string | null) => void) | undefined;
  /** Ends the start of a server that waits for the archive, or restores it. */
  readonly signal: AbortSignal;
}

export interface ArchiveState {
  /** Age of the oldest commit that the archive does not have, in seconds; 0 if there is none. */
  readonly secondsBehind: number;
  readonly bytesBehind: number;
  /** When the last base was complete, in seconds since the Unix epoch; `null` before the first one. */
  readonly lastBaseS: number | null;
  /** Whether no other server can have taken over by now. */
  readonly isHeld: boolean;
  /** Whether its storage has responded not long ago, also if it said that another server has taken over. */
  readonly isReachable: boolean;
}

/** A log that was ended, so that a standby takes over immediately. */
export interface Promotion {
  readonly generation: number;
  /** Names the server that has written it, for operators. */
  readonly holder: string;
  readonly hadEnded: boolean;
  /** Who takes over; `null` if the promotion was forced. */
  readonly standby: string | null;
}

export interface ArchivedRange {
  readonly generations: readonly [first: number, last: number];
  readonly times: readonly [from: Date, until: Date] | null;
  /** What is missing or damaged, so that the states after it cannot be restored; `null` if nothing is. */
  readonly loss: string | null;
}
