/** One generation of the archive, while this server writes it: its log, its bases and its heartbeat. */
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import type { ArchiveContext } from "../context.ts";
import type { Base, Slot } from "../format.ts";
import type { Progress, WalPart, WalPosition, WalReader } from "../machine.ts";
import type { Beginning } from "./generation.ts";
import { type Heartbeat, type HeartbeatEvents, startHeartbeat } from "./heartbeat.ts";
import { createLog, type Log } from "./log.ts";

/** A segment that was read. */
type ReadSegment = Pick<Slot, "generation" | "number" | "timeMs">;

export interface QueuedSegment extends ReadSegment {
  readonly part: WalPart;
  readonly previous: WalPosition | null;
  readonly reached: Progress | null;
  readonly ascendsFrom: number;
}

/** The segments up to this one have everything that was committed until this time. */
interface Read {
  readonly segment: number;
  /** Ticket of the last commit counted by then. */
  readonly ticket: number;
  /** By the monotonic clock, as all but the times of segments. */
  readonly timeMs: number;
}

export interface GenerationEvents extends HeartbeatEvents {
  /** Called when the archive can restore all commits up to this ticket and until this time. */
  readonly onStored: (ticket: number, untilMs: number) => void;
  /** Called once, with its name, when another server has continued the archive. */
  readonly onSuperseded: (holder: string) => void;
}

export interface GenerationWriter {
  readonly archive: ArchiveContext;
  readonly beginning: Beginning;
  readonly events: GenerationEvents;
  readonly log: Log;
  readonly heartbeat: Heartbeat;
  readonly reader: WalReader;
  readonly queue: QueuedSegment[];
  /** Bytes that were read, and are not in the archive. */
  pendingBytes: number;
  /** Bytes of compressed segments that the archive has. */
  storedBytes: number;
  /** The last segment that was read. Before the first one, its number is 0, and its time that of what is continued. */
  lastRead: ReadSegment;
  /** Where that segment ends. */
  previous: WalPosition | null;
  ascendsFrom: number;
  /** Progress of the database as of `lastRead`; older while there is more to read. */
  reached: Progress | null;
  /** Number of the first segment since the restart of the WAL; `null` if it is in an earlier generation. */
  firstOfWal: number | null;
  /** One for each segment that is not confirmed, or the last one. */
  reads: Read[];
  /** Ticket of the last commit counted when the end of the WAL was read. */
  readTicket: number;
  /** `null` if the generation has begun with a base, which is not complete. */
  newestBase: Base | null;
  /** `storedBytes` when the newest base was begun; 0 if it is of an earlier generation. */
  baseStartBytes: number;
  /** When this server began the newest base, `null` if another did; and the last one because the clock was ahead. */
  begunMs: number | null;
  clockBaseMs: number;
  /** When what has expired was deleted. */
  deletedMs: number;
}

export interface Archiving extends ArchiveContext {
  /** Writes the current generation; `null` until it has begun. */
  writer: GenerationWriter | null;
}

/**
 * @param opening repeats calls that fail, for the first heartbeat
 * @throws {AppError} unavailable if the storage does not take that
 */
export async function createGenerationWriter(
  archive: ArchiveContext,
  beginning: Beginning,
  events: GenerationEvents,
  opening: ObjectStorage,
): Promise<GenerationWriter> {
  const { storage, problems, database } = archive;
  const { generation, position, previous, timeMs, newest } = beginning;
  const log = createLog({
    storage,
    generation,
    retry: (attempt) => problems.retry("segments", () => log.isEnded(), attempt),
    onSuperseded: events.onSuperseded,
  });
  return {
    archive,
    beginning,
    events,
    log,
    heartbeat: await startHeartbeat(archive, generation, log, events, opening),
    reader: database.readWal(position),
    queue: [],
    pendingBytes: 0,
    storedBytes: 0,
    lastRead: { generation: generation.number, number: 0, timeMs },
    previous,
    ascendsFrom: 1,
    reached: null,
    firstOfWal: position.offset === 0 ? 1 : null,
    reads: [],
    readTicket: 0,
    newestBase: newest,
    baseStartBytes: 0,
    begunMs: null,
    clockBaseMs: Number.NEGATIVE_INFINITY,
    deletedMs: Number.NEGATIVE_INFINITY,
  };
}

/** Sends nothing more, as if the storage were unreachable. */
export function endGeneration({ log, heartbeat }: GenerationWriter): void {
  log.end();
  heartbeat[Symbol.dispose]();
}
