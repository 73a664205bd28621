/** The state of an archiver. It is apart from the context, which the parts of a generation know: they know no archiver. */
import { messageOf } from "../../base/error.ts";
import type { ArchiveContext } from "./context.ts";
import type { GenerationWriter } from "./generation-writer.ts";
import type { WalLock } from "./wal-lock.ts";

export interface Archiving extends ArchiveContext {
  readonly walLock: WalLock;
  /** Aborted when the archive was closed, or is that of another server. */
  readonly ending: AbortController;
  /** Writes the current generation; `null` until it has begun. */
  writer: GenerationWriter | null;
  isStarted: boolean;
  /** When an unexpected error last ended a generation, and until when no other one begins, by the monotonic clock. */
  failedMs: number;
  pausedUntilMs: number;
  /** The archive has all commits up to this time, by the monotonic clock; `null` before the first confirmation. */
  completeUntilMs: number | null;
  readonly createdMs: number;
  bytesBehind: number;
  /** No other server can have taken over before this time, by the monotonic clock. */
  heldUntilMs: number;
}

export function isOver({ ending }: Archiving): boolean {
  return ending.signal.aborted;
}

/** @returns why the archive cannot be kept up to date; `null` if it can */
export function problemOf({ ending: { signal }, problems }: Archiving): string | null {
  return signal.aborted ? messageOf(signal.reason) : problems.current();
}
