/** Writes one generation of the archive: its log, its bases and its heartbeat. */
import type { ArchiveLog, ArchiveSettings } from "../../domain/archive.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { type Bases, createBases } from "./bases.ts";
import type { Beginning } from "./generation.ts";
import { startHeartbeat } from "./heartbeat.ts";
import { createLog, type Log } from "./log.ts";
import type { Problems } from "./problems.ts";
import type { ProgressReader } from "./progress.ts";
import { createRetention } from "./retention.ts";
import { createSegmentWriter, type SegmentWriter } from "./segments.ts";

interface WriterOptions extends Pick<ArchiveSettings, "keepMs"> {
  readonly storage: ObjectStorage;
  readonly files: FileDescriptors;
  readonly progress: ProgressReader;
  readonly problems: Problems;
  readonly beginning: Beginning;
  readonly nowMs: () => number;
  readonly onLog: ArchiveLog;
  /** @returns the ticket of the last commit that was counted */
  readonly lastTicket: () => number;
  readonly onConfirmed: (ticket: number, untilMs: number) => void;
  /** Called once, with its name, when another server has continued the archive. */
  readonly onSuperseded: (holder: string) => void;
  readonly onGap: () => void;
  readonly onError: (error: unknown) => void;
  /** Called when a base is complete. */
  readonly onBase: () => void;
}

export interface GenerationWriter {
  readonly log: Log;
  readonly segments: SegmentWriter;
  readonly bases: Bases;
  /** Sends what is new, and does what is due. It does not wait. */
  tick(): void;
  /** Whether the archive can restore all commits. */
  isComplete(): boolean;
  /** Sends nothing more, as if the storage were unreachable. */
  end(): void;
}

/** @throws {AppError} unavailable if another server has the archive already */
export async function createGenerationWriter(options: WriterOptions): Promise<GenerationWriter> {
  const { storage, problems, beginning, nowMs, keepMs } = options;
  const { generation } = beginning;
  const log = createLog({
    storage,
    generation,
    retry: (attempt) => problems.retry("segments", () => log.isEnded(), attempt),
    onSuperseded: options.onSuperseded,
  });
  const segments = createSegmentWriter({
    ...options,
    log,
    // Nothing can be restored without a base.
    canConfirm: () => bases.newest() !== null,
  });
  const bases: Bases = createBases({ ...options, log, segments, onWritten: options.onBase });
  const deleteIfDue = createRetention({ storage, keepMs, nowMs, problems, isOver: log.isEnded });
  const heartbeat = await startHeartbeat({ storage, generation, log, problems });
  return {
    log,
    segments,
    bases,
    tick() {
      segments.advance();
      bases.writeIfDue();
      if (!log.isEnded()) deleteIfDue();
    },
    isComplete: () => bases.newest() !== null && segments.bytesBehind() === 0,
    end() {
      log.end();
      heartbeat[Symbol.dispose]();
    },
  };
}
