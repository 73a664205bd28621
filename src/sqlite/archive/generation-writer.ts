/** Writes a generation: sends the WAL, confirms commits, and writes a base when one is due. */
import type { ArchiveLog } from "../../archive.ts";
import type { ObjectStorage } from "../../object-storage.ts";
import type { FileDescriptors } from "../file-watch.ts";
import { createBases } from "./bases.ts";
import type { Confirmations } from "./confirmations.ts";
import type { Base, SegmentId } from "./format.ts";
import type { Beginning } from "./generation.ts";
import type { Problems } from "./problems.ts";
import { createSegmentWriter } from "./segments.ts";
import { createWalReader } from "./wal-reader.ts";

interface GenerationWriterOptions {
  readonly storage: ObjectStorage;
  readonly files: FileDescriptors;
  readonly beginning: Beginning;
  readonly problems: Problems;
  readonly confirmations: Confirmations;
  /** Whether no other server can write to the archive. */
  readonly isHeld: () => boolean;
  readonly nowMs: () => number;
  readonly log: ArchiveLog;
  readonly onConfirmed: (commit: number) => void;
  readonly onBase: () => void;
  /** Called once, when parts of the WAL are lost. */
  readonly onGap: () => void;
  readonly onError: (error: unknown) => void;
}

export interface GenerationWriter {
  /** Sends what is new. It does not wait. */
  send(): void;
  /** Reads the WAL to its end, and sends what fits. @returns whether it was read to its end */
  readAll(): boolean;
  writeBaseIfDue(): void;
  isWritingBase(): boolean;
  newestBase(): Base | null;
  /** Whether the archive can restore all commits. */
  isComplete(): boolean;
  /** Bytes of the WAL that are not in the archive. */
  bytesBehind(): number;
  /** The last segment that the archive has of this database. */
  last(): SegmentId;
  end(): void;
}

export function createGenerationWriter(options: GenerationWriterOptions): GenerationWriter {
  const { storage, files, beginning, problems, confirmations, isHeld } = options;
  const { nowMs, log, onConfirmed, onBase, onGap, onError } = options;
  const { generation } = beginning;
  const reader = createWalReader(files, beginning.position);
  const segments = createSegmentWriter({
    storage,
    problems,
    beginning,
    reader,
    nowMs,
    onStored: () => (confirmations.isUnread() ? send() : confirm()),
    onGap,
    onError,
  });
  const bases = createBases({
    storage,
    problems,
    generation: generation.number,
    segments,
    database: files.database,
    newest: beginning.newest,
    nowMs,
    log,
    onWritten() {
      send();
      onBase();
    },
  });

  function confirm(): void {
    confirmations.stored(segments.stored());
    // Nothing can be restored without a base. If the lease is held, what was stored until now is in the archive, whoever
    // has it next: that server reads it after this lease.
    if (bases.newest() === null || !isHeld()) return;
    const commit = confirmations.take();
    if (commit !== null) onConfirmed(commit);
  }

  /** Remembers which commits the archive has when what was read is stored. */
  function send(): void {
    const timeMs = nowMs();
    // Not before there is room, so that all writes until then share a segment.
    const isRead = segments.hasRoom() ? segments.readAll() : reader.unreadBytes() === 0;
    segments.send();
    if (segments.isEnded()) return;
    if (isRead) confirmations.read(segments.lastRead(), timeMs);
    confirm();
  }

  function bytesBehind(): number {
    return segments.pendingBytes() + reader.unreadBytes();
  }

  return {
    send,
    readAll() {
      const isRead = segments.readAll();
      segments.send();
      return isRead;
    },
    writeBaseIfDue() {
      if (!segments.isEnded()) bases.writeIfDue();
    },
    isWritingBase: bases.isWriting,
    newestBase: bases.newest,
    isComplete: () => bases.newest() !== null && bytesBehind() === 0,
    bytesBehind,
    last() {
      const number = segments.stored();
      const own = { generation: generation.number, number };
      return number > 0 ? own : (generation.parent ?? own);
    },
    end: segments.end,
  };
}
