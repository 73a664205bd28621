/** Writes one generation of the archive: its log, its bases and its heartbeat. */
import { type Bases, createBases } from "./bases.ts";
import type { ArchiveContext } from "./context.ts";
import type { Beginning } from "./generation.ts";
import { type HeartbeatEvents, startHeartbeat } from "./heartbeat.ts";
import { createLog } from "./log.ts";
import { deleteExpired } from "./retention.ts";
import { advance, bytesBehind, createSegmentWriter, type SegmentEvents } from "./segments.ts";

/** Interval at which expired objects are deleted. */
const RETENTION_INTERVAL_MS = 60 * 60 * 1000;

interface GenerationEvents extends SegmentEvents, HeartbeatEvents {
  /** Called once, with its name, when another server has continued the archive. */
  readonly onSuperseded: (holder: string) => void;
}

export type GenerationWriter = Awaited<ReturnType<typeof createGenerationWriter>>;

/** @throws {AppError} unavailable if another server has the archive already */
export async function createGenerationWriter(
  archive: ArchiveContext,
  beginning: Beginning,
  events: GenerationEvents,
) {
  const { storage, problems, nowMs, keepMs } = archive;
  const { generation } = beginning;
  const log = createLog({
    storage,
    generation,
    retry: (attempt) => problems.retry("segments", () => log.isEnded(), attempt),
    onSuperseded: events.onSuperseded,
  });
  const segments = createSegmentWriter(archive, beginning, log, {
    onError: events.onError,
    onStored(...stored) {
      // Nothing can be restored without a base.
      if (bases.newest() !== null) events.onStored(...stored);
    },
  });
  const bases: Bases = createBases(segments);
  let deletedMs = Number.NEGATIVE_INFINITY;
  const heartbeat = await startHeartbeat(archive, generation, log, events);
  return {
    log,
    segments,
    bases,
    /** Sends what is new, and does what is due. It does not wait. */
    tick(): void {
      advance(segments);
      bases.writeIfDue();
      if (log.isEnded() || nowMs() - deletedMs < RETENTION_INTERVAL_MS) return;
      deletedMs = nowMs();
      void problems.run("deletion", log.isEnded, () => deleteExpired(storage, nowMs() - keepMs));
    },
    /** Whether the archive can restore all commits. */
    isComplete: () => bases.newest() !== null && bytesBehind(segments) === 0,
    /** Sends nothing more, as if the storage were unreachable. */
    end(): void {
      log.end();
      heartbeat[Symbol.dispose]();
    },
  };
}
