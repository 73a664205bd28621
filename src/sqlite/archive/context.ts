/** What the parts of the archive of an open database share. */
import { AppError, messageOf, systemCode } from "../../base/error.ts";
import { createSettledClock } from "../../base/settled-clock.ts";
import type { ArchiveOptions, ArchiveSettings, ArchiveState } from "../../domain/archive.ts";
import { type ObjectStorage, withRetries } from "../../domain/object-storage.ts";
import type { DatabaseFiles, Machine, OpenDatabase } from "./machine.ts";
import { createProblems } from "./problems.ts";

/** Cause of an error of the archive: the database itself may be sound. */
export const ARCHIVE_CAUSE = "archive";
/** Cause of an error of a start whose database and archive have different histories. */
export const DIVERGED = "archive diverged";
/** Cause of an error after which the copy of a standby must be restored. */
export const COPY_BROKEN = "archive copy broken";
/** Cause of an error that stops a start: the settings, a storage that cannot have an archive, or another archive. */
export const UNUSABLE = "archive unusable";
const archiveCauses = [ARCHIVE_CAUSE, DIVERGED, COPY_BROKEN, UNUSABLE] as const;
export type ArchiveCause = (typeof archiveCauses)[number];

/** @returns what a server can do about an error of the archive; `null` for any other error */
export function causeOf(error: unknown): ArchiveCause | null {
  if (!(error instanceof AppError)) return null;
  return archiveCauses.find((cause) => cause === error.cause) ?? null;
}

export function endsCopy(error: unknown): boolean {
  return [COPY_BROKEN, DIVERGED].some((cause) => cause === causeOf(error));
}

export function failCopyBroken(reason: string): never {
  throw new AppError("unavailable", reason, { cause: COPY_BROKEN });
}

/** @returns whether it is no bug: an expected error, or one of the system or of SQLite */
export function isExpected(error: unknown): boolean {
  return error instanceof AppError || /^(?:E[A-Z]|SQLITE_)/.test(systemCode(error));
}

const CLOSED = -1;

/** What threads know of writes without a message: while one hangs, its thread reads none. @param memory of another thread */
export function createWriteState(memory = new SharedArrayBuffer(8)) {
  const cells = new Int32Array(memory);
  const replace = (number: number, by: number) =>
    Atomics.compareExchange(cells, 0, number, by) === number;
  let begun = CLOSED;
  return {
    memory,
    /** Odd while an attempt to write runs. */
    number: () => Atomics.load(cells, 0),
    /** Begins an attempt, which `end` ends. @returns false if nothing may be acknowledged any more */
    begin(): boolean {
      const number = Atomics.load(cells, 0);
      begun = number === CLOSED ? CLOSED : number + 1;
      return begun !== CLOSED && replace(number, begun);
    },
    /** @returns whether an attempt was running, and may be acknowledged */
    end(): boolean {
      const number = begun;
      begun = CLOSED;
      return number !== CLOSED && replace(number, (number + 1) % 2 ** 31);
    },
    /** Nothing is acknowledged any more. @returns false if an attempt has begun or ended since that number */
    close: (number: number) => replace(number, CLOSED),
    isFailing: () => cells[1] === 1,
    /** @param isFailing whether the last attempt has failed because of the disk */
    setFailing: (isFailing: boolean) => void Atomics.store(cells, 1, Number(isFailing)),
  };
}

export interface ServerContext
  extends Omit<ArchiveSettings, "url" | "environment">,
    Pick<ArchiveOptions, "signal" | "onWaiting"> {
  readonly files: DatabaseFiles;
  readonly storage: ObjectStorage;
  readonly machine: Machine;
  readonly log: ArchiveOptions["onLog"];
}

/** @see ArchiveState. `heldForMs` is how much longer it is held; not positive if it is not. */
export type ArchiveReport = Omit<ArchiveState, "isHeld" | "isReachable"> & {
  readonly heldForMs: number;
};

export interface ArchiverOptions extends ServerContext {
  readonly database: OpenDatabase;
  readonly writes: ReturnType<typeof createWriteState>;
  /** While the storage is unreachable, the WAL keeps what is missing up to this size, or half of the free space. */
  readonly maxWalBytes: number;
  /** Called when the archive can restore all commits up to this ticket. */
  readonly onConfirmed: (ticket: number) => void;
  readonly onState: (state: ArchiveReport) => void;
  readonly onSuperseded: (reason: string) => void;
}

export interface GenerationEvents {
  /** Called once, with its name for operators, when another server has a slot of the log. */
  onSuperseded(holder: string): void;
  onHeld(untilMs: number): void;
  /** Called when the generation cannot go on: a segment was not sent, or the storage has lost objects. */
  onError(error: unknown): void;
  onLack(key: string): Promise<void>;
}

export type ArchiveContext = ReturnType<typeof createContext>;

export function createContext(options: ArchiverOptions, events: GenerationEvents) {
  const { machine, files, database, log } = options;
  const problems = createProblems(log, machine, options.onWaiting);
  /** Aborted when the archive was closed, or is that of another server. */
  const ending = new AbortController();
  return {
    ...options,
    ...{ events, problems, ending },
    isOver: () => ending.signal.aborted,
    /** @returns why the archive cannot be kept up to date; `null` if it can */
    problem: () => (ending.signal.aborted ? messageOf(ending.signal.reason) : problems.current()),
    /** Everything that a timer or a message begins runs in it: an error would end the thread. */
    guard(work: () => void): void {
      try {
        work();
      } catch (error) {
        events.onError(error);
      }
    },
    signal: AbortSignal.any([options.signal, ending.signal]),
    /** Repeats calls that fail, for what begins a generation. */
    opening: withRetries(options.storage, machine, {
      onResult: (error) =>
        error === null ? problems.clear("opening") : problems.report("opening", error),
    }),
    identity: files.lockIdentity(),
    walPin: database.pinWal(),
    progress: database.openProgress(),
    settledMs: createSettledClock(machine.nowMs, machine.monotonicMs),
    lastTicket: 0,
    isStarted: false,
    /** When an unexpected error last ended a generation, and until when no other one begins, by the monotonic clock. */
    failedMs: Number.NEGATIVE_INFINITY,
    pausedUntilMs: Number.NEGATIVE_INFINITY,
    /** The last look for what a standby could not read; `null` before the first one. */
    lack: null as { key: string; lookedMs: number; isLost: boolean } | null,
    /** The archive has all commits up to this time, by the monotonic clock; `null` before the first confirmation. */
    completeUntilMs: null as number | null,
    createdMs: machine.monotonicMs(),
    bytesBehind: 0,
    /** No other server can have taken over before this time, by the monotonic clock. */
    heldUntilMs: Number.NEGATIVE_INFINITY,
    /** Whether parts of the WAL since the end of the archive are known to be lost. */
    hasGap: false,
  };
}
