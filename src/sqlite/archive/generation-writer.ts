/** Writes a generation: sends the WAL, confirms commits, and writes a base when one is due. */
import type { ArchiveLog } from "../../archive.ts";
import type { ObjectStorage } from "../../object-storage.ts";
import type { FileDescriptors } from "../file-watch.ts";
import { type Bases, createBases } from "./bases.ts";
import type { SegmentId } from "./format.ts";
import type { Beginning } from "./generation.ts";
import type { Problems } from "./problems.ts";
import { createSegmentWriter } from "./segments.ts";

interface GenerationWriterOptions {
  readonly storage: ObjectStorage;
  readonly files: FileDescriptors;
  readonly beginning: Beginning;
  readonly problems: Problems;
  /** @returns the number of the last commit that was counted */
  readonly lastCommit: () => number;
  /** Whether no other server can write to the archive. */
  readonly isHeld: () => boolean;
  readonly nowMs: () => number;
  readonly log: ArchiveLog;
  /** Called when the archive has all commits up to this number and until this time. */
  readonly onConfirmed: (commit: number, untilMs: number) => void;
  /** Called when a base is complete. */
  readonly onBase: () => void;
  /** Called once, when parts of the WAL are lost. */
  readonly onGap: () => void;
  readonly onError: (error: unknown) => void;
}

export interface GenerationWriter {
  /** Sends what is new. It does not wait. */
  send(): void;
  /** @see SegmentWriter.readAll */
  readAll(): boolean;
  readonly bases: Bases;
  /** Whether the archive can restore all commits. */
  isComplete(): boolean;
  /** @see SegmentWriter.bytesBehind */
  bytesBehind(): number;
  /** The last segment that the archive has of this database. */
  last(): SegmentId;
  end(): void;
}

/** The segments up to this one have everything that was committed until this time. */
interface Read {
  readonly segment: number;
  /** The last commit that was counted by then. */
  readonly commit: number;
  readonly timeMs: number;
}

export function createGenerationWriter(options: GenerationWriterOptions): GenerationWriter {
  const { storage, files, beginning, problems, lastCommit, isHeld } = options;
  const { nowMs, log, onConfirmed, onBase, onGap, onError } = options;
  const { generation } = beginning;
  /** One for each segment that is not confirmed, or the last one. */
  let reads: Read[] = [];
  /** The last commit that was counted when the end of the WAL was read. */
  let readCommit = 0;
  const shared = { storage, problems, beginning, nowMs };
  const segments = createSegmentWriter({
    ...shared,
    files,
    onStored: () => (readCommit < lastCommit() ? send() : confirm()),
    onGap,
    onError,
  });
  const bases = createBases({
    ...shared,
    segments,
    database: files.database,
    log,
    onWritten: onBase,
  });

  function confirm(): void {
    // Nothing can be restored without a base. If the lease is held, what was stored until now is in the archive, whoever
    // has it next: that server reads it after this lease.
    if (bases.newest() === null || !isHeld()) return;
    const stored = segments.stored();
    const last = reads.findLast(({ segment }) => segment <= stored);
    if (last === undefined) return;
    reads = reads.filter(({ segment }) => segment > stored);
    onConfirmed(last.commit, last.timeMs);
  }

  /** Remembers which commits the archive has when what was read is stored. */
  function send(): void {
    const timeMs = nowMs();
    const isRead = segments.readIfRoom();
    if (segments.isEnded()) return;
    if (isRead) {
      const segment = segments.lastRead().number;
      readCommit = lastCommit();
      if (reads.at(-1)?.segment === segment) reads.pop();
      reads.push({ segment, commit: readCommit, timeMs });
    }
    confirm();
  }

  return {
    send,
    readAll: segments.readAll,
    bases,
    isComplete: () => bases.newest() !== null && segments.bytesBehind() === 0,
    bytesBehind: segments.bytesBehind,
    last() {
      const number = segments.stored();
      const own = { generation: generation.number, number };
      return number > 0 ? own : (generation.parent ?? own);
    },
    end: segments.end,
  };
}
