/**
 * The disk of a simulated machine, and a database on it: cells instead of pages. Each commit writes one cell, of which the
 * first has no word. The WAL has frames, checkpoints copy them to the file, as in SQLite.
 */
import { fail } from "../../src/base/error.ts";
import type {
  ArchiveMarker,
  Copy,
  DatabaseFiles,
  OpenDatabase,
  RestoredFile,
  WalPin,
  WalPosition,
  WalReader,
} from "../../src/sqlite/archive/machine.ts";
import type { FileDescriptors } from "../../src/sqlite/file/file-watch.ts";
import type { Host, Process } from "./clock.ts";

const HEADER_BYTES = 32;
const FRAME_BYTES = 4_120;
/** So that a chunk of a base has 32 cells. */
const CELL_BYTES = 2 ** 17;
/** Of a part of the WAL, so that some commits are in several. */
const MAX_PART_FRAMES = 6;

interface Frame {
  readonly index: number;
  readonly text: string;
  /** Of this frame and all before it. */
  readonly checksum: string;
}

/** `shown` is the number of frames that connections see, `copied` of those that checkpoints have copied. */
const emptyWal = () => ({ salt: "", frames: [] as Frame[], shown: 0, copied: 0, commits: 0 });

type Wal = ReturnType<typeof emptyWal>;

const emptyContents = () => ({
  cells: null as string[] | null,
  wal: emptyWal(),
  marker: null as ArchiveMarker | null,
  /** That of the file with this inode. */
  next: null as { readonly inode: number; readonly marker: ArchiveMarker } | null,
});

/** What survives everything but the loss of the disk. The version grows with each write to the file. */
type Contents = ReturnType<typeof emptyContents> & { inode: number; version: number };

type DiskFault = "EIO" | "ENOSPC" | "EROFS" | null;

export type Disk = ReturnType<typeof createDisk>;

const offsetOf = (frames: number) => (frames === 0 ? 0 : HEADER_BYTES + frames * FRAME_BYTES);

const framesBefore = (offset: number) => Math.max(0, (offset - HEADER_BYTES) / FRAME_BYTES);

const encode = (value: unknown) => new Uint8Array(Buffer.from(JSON.stringify(value)));

function decode<Value>(bytes: Uint8Array): Value {
  return JSON.parse(new TextDecoder().decode(bytes));
}

function overlay(cells: readonly string[], frames: readonly Frame[]): string[] {
  const state = [...cells];
  for (const { index, text } of frames) state[index] = text;
  return state;
}

const wordsOf = (cells: readonly string[]): ReadonlySet<string> => new Set(cells.slice(1));

/** @returns what is wrong with a database; `null` if nothing is */
function damageOf({ length }: readonly string[], words: ReadonlySet<string>): string | null {
  if (words.has(undefined as never)) return "a cell is missing";
  return words.size < length - 1 ? "a word is there twice" : null;
}

export function createDisk(host: Host) {
  let inodes = 0;
  let writes = 0;
  let fault: DiskFault = null;
  /** Calls until the process that makes the next one is killed. */
  let callsLeft = Number.POSITIVE_INFINITY;
  const contents: Contents = { inode: 0, version: 0, ...emptyContents() };
  const newSalt = () => host.random(2 ** 31).toString(16);

  /** Each access to the disk: what a dead process does has no effect. */
  function touch(process: Process, isWrite: boolean): void {
    callsLeft -= 1;
    if (callsLeft < 0) {
      callsLeft = Number.POSITIVE_INFINITY;
      process.kill();
    }
    const failure = isWrite || fault === "EIO" ? fault : null;
    const code = process.isDead() ? "killed" : failure;
    if (code !== null) throw Object.assign(new Error(`${code}: the disk fails`), { code });
  }

  /** All cells as connections see them; `null` after a change of more than one. */
  let seen: string[] | null = null;
  /** Those of `seen`; `null` after any change. */
  let seenWords: ReadonlySet<string> | null = null;

  /** Do not change what it returns. */
  function state(): readonly string[] {
    const { cells, wal } = contents;
    seen ??= overlay(cells ?? [], wal.frames.slice(0, wal.shown));
    return seen;
  }

  function words(): ReadonlySet<string> {
    seenWords ??= wordsOf(state());
    return seenWords;
  }

  function change(changed: Partial<Contents>): void {
    Object.assign(contents, changed);
    seen = seenWords = null;
  }

  function write(process: Process, changed: Partial<Contents>): void {
    touch(process, true);
    change(changed);
  }

  function showAll(): void {
    const { wal } = contents;
    if (wal.shown === wal.frames.length) return;
    wal.shown = wal.frames.length;
    seen = seenWords = null;
  }

  function copyWal(): void {
    const { wal } = contents;
    if (wal.copied === wal.frames.length) return;
    contents.cells = [...state()];
    writes += 1;
    contents.version = writes;
    wal.copied = wal.frames.length;
  }

  function append(wal: Wal, index: number, text: string): void {
    const before = wal.frames.at(-1)?.checksum ?? wal.salt;
    const checksum = Bun.hash(`${before} ${index} ${text}`).toString(16);
    wal.frames.push({ index, text, checksum });
  }

  function readMarker(): ArchiveMarker | null {
    const { next, marker, inode, cells } = contents;
    return cells !== null && next?.inode === inode ? next.marker : marker;
  }

  const positionOf = ({ salt, frames }: Wal, count: number): WalPosition => ({
    salt,
    offset: offsetOf(count),
    checksum: frames[count - 1]?.checksum ?? "",
  });

  function continuesAt({ salt, offset, checksum }: WalPosition): boolean {
    const { wal } = contents;
    const count = framesBefore(offset);
    if (wal.salt !== salt || count > wal.frames.length) return false;
    return (wal.frames[count - 1]?.checksum ?? "") === checksum;
  }

  function readWal(process: Process, start: WalPosition): WalReader {
    let position = start;
    let commits: number | null = null;
    return {
      read() {
        touch(process, false);
        const { wal } = contents;
        const end = wal.frames.length;
        const gap = new Error("the WAL was restarted by another program");
        if (wal.salt !== position.salt) {
          if (end === 0) return null;
          if (commits === null || wal.commits - commits !== end) throw gap;
          position = { salt: wal.salt, offset: 0, checksum: "" };
        }
        const first = framesBefore(position.offset);
        if (end < first) throw gap;
        if (end === first) {
          commits = wal.commits;
          return null;
        }
        const count = Math.min(MAX_PART_FRAMES, end - first);
        commits = first + count === end ? wal.commits : null;
        const { offset } = position;
        position = positionOf(wal, first + count);
        const bytes = encode({ salt: wal.salt, frames: wal.frames.slice(first, first + count) });
        return { salt: wal.salt, offset, bytes, end: position };
      },
      unreadBytes() {
        touch(process, false);
        const { salt, frames } = contents.wal;
        const read = salt === position.salt ? position.offset : 0;
        return Math.max(0, offsetOf(frames.length) - read);
      },
    };
  }

  function pinWal(process: Process): WalPin {
    function complete(read: () => boolean, work = () => {}): boolean {
      if (!read()) return false;
      touch(process, true);
      copyWal();
      work();
      return true;
    }
    return { checkpoint: complete, complete, [Symbol.dispose]() {} };
  }

  function openCopy(process: Process, start: WalPosition | null): Copy {
    let end = start;
    let isWhole = start !== null && contents.wal.salt === start.salt;
    return {
      append({ salt: own, offset, end: next }, bytes) {
        const isNext = isWhole && own === end?.salt && offset === end.offset;
        if (offset > 0 && !isNext) return false;
        touch(process, true);
        const { salt, frames } = decode<Pick<Wal, "salt" | "frames">>(bytes);
        if (offset === 0) change({ wal: { ...emptyWal(), salt } });
        contents.wal.frames.push(...frames);
        isWhole = true;
        end = next;
        return true;
      },
      show() {
        touch(process, true);
        showAll();
      },
      truncateWal() {
        try {
          touch(process, true);
        } catch (error) {
          return String(error);
        }
        showAll();
        copyWal();
        change({ wal: { ...emptyWal(), salt: newSalt() } });
        isWhole = false;
        return null;
      },
      [Symbol.dispose]() {},
    };
  }

  function open(process: Process): OpenDatabase {
    return {
      walBytes: () => offsetOf(contents.wal.frames.length),
      continuesAt,
      beginning: () => positionOf(contents.wal, 0),
      readWal: (start) => readWal(process, start),
      readFile(at, length) {
        touch(process, false);
        const end = (at + length) / CELL_BYTES;
        const cells = (contents.cells ?? []).slice(at / CELL_BYTES, end);
        return cells.length === 0 ? new Uint8Array() : encode(cells);
      },
      fileBytes: () => (contents.cells?.length ?? 0) * CELL_BYTES,
      pinWal: () => pinWal(process),
      openProgress: () => ({
        read() {
          try {
            touch(process, false);
          } catch {
            return null;
          }
          const cells = state();
          const changes = Math.max(0, cells.length - 1);
          const lastChange = changes === 0 ? null : (cells[changes] ?? null);
          return { changes, lastChange, tokens: 0, revokedTokens: 0 };
        },
        lacks({ changes, lastChange }) {
          if (changes === 0) return false;
          return (state()[changes] ?? null) !== lastChange;
        },
        [Symbol.dispose]() {},
      }),
      openCopy: (start) => openCopy(process, start),
    };
  }

  function beginRestore(process: Process): RestoredFile {
    const isCopy = readMarker()?.isCopy === true;
    if (contents.cells !== null && !isCopy) fail("operator", "the file already exists");
    let cells: string[] = [];
    let wal = { salt: "", offset: 0, frames: [] as Frame[] };
    const apply = () => {
      cells = overlay(cells, wal.frames);
    };
    return {
      beginFile() {
        touch(process, true);
        cells = [];
      },
      appendFile(bytes) {
        touch(process, true);
        cells.push(...decode<string[]>(bytes));
      },
      appendWal({ salt, offset }, bytes) {
        touch(process, true);
        if (salt !== wal.salt) {
          if (offset !== 0) return false;
          apply();
          wal = { salt, offset: 0, frames: [] };
        }
        if (offset !== wal.offset) return false;
        wal.frames.push(...decode<Wal>(bytes).frames);
        wal.offset = offsetOf(wal.frames.length);
        return true;
      },
      endWal: apply,
      publish(markerOf) {
        const damage = damageOf(cells, wordsOf(cells));
        if (damage !== null) fail("operator", `the database is damaged: ${damage}`);
        inodes += 1;
        writes += 1;
        const [inode, version] = [inodes, writes];
        const marker = markerOf(`${host.name}:${inode}:${version}`);
        touch(process, true);
        contents.next = { inode, marker };
        if (isCopy) discard(process);
        write(process, { inode, version, cells, wal: emptyWal() });
        write(process, { marker, next: null });
      },
      [Symbol.dispose]() {},
    };
  }

  function discard(process: Process): void {
    write(process, { wal: emptyWal() });
    write(process, { cells: null });
  }

  /** @returns the files as a thread of this process sees them */
  function files(process: Process): DatabaseFiles {
    return {
      path: `/none/${host.name}.db`,
      holder: host.name,
      lockIdentity: () => host.name,
      bytes() {
        touch(process, false);
        return contents.cells === null ? 0 : CELL_BYTES * (contents.cells.length + 1);
      },
      walBytes: () => offsetOf(contents.wal.frames.length),
      state() {
        const { inode, version, cells } = contents;
        return cells === null ? "" : `${host.name}:${inode}:${version}`;
      },
      freeBytes: () => (fault === "ENOSPC" ? 0 : null),
      readMarker() {
        touch(process, false);
        return readMarker();
      },
      writeMarker: (marker) => write(process, { marker, next: null }),
      notTheArchive: "it is empty or another archive",
      requireWritable() {
        if (fault !== null)
          fail("unavailable", `waiting for its disk, which cannot be written (${fault})`);
        touch(process, true);
      },
      noteArchived() {},
      discard: () => discard(process),
      discardWal: () => write(process, { wal: emptyWal() }),
      beginWal() {
        const parts = new Map<number, Uint8Array>();
        return {
          write(bytes, offset) {
            touch(process, true);
            parts.set(offset, bytes);
          },
          publish() {
            const wal = emptyWal();
            for (const [, bytes] of [...parts].sort(([one], [other]) => one - other)) {
              const part = decode<Wal>(bytes);
              wal.salt = part.salt;
              wal.frames.push(...part.frames);
            }
            write(process, { wal });
          },
          [Symbol.dispose]() {},
        };
      },
      beginRestore: () => beginRestore(process),
      open: (_: FileDescriptors) => open(process),
    };
  }

  return {
    files,
    setFault(next: DiskFault) {
      fault = next;
    },
    crashAfter(calls: number) {
      callsLeft = calls;
    },
    snapshot: (): Contents => structuredClone(contents),
    /** Call it while no process runs. @param isSame whether the file keeps its identity, as that of a virtual machine */
    replace(other: Contents | null, isSame: boolean): void {
      inodes += 1;
      const inode = isSame ? {} : { inode: inodes };
      change({ ...(other === null ? emptyContents() : structuredClone(other)), ...inode });
    },
    exists: () => contents.cells !== null,
    hasOrphan: () => contents.cells === null && contents.wal.frames.length > 0,
    marker: readMarker,
    words,
    has: (word: string) => state().includes(word, 1),
    damage: () => damageOf(state(), words()),
    /** What the server itself does with the database, as SQLite does. */
    server: (process: Process) => ({
      create(): void {
        touch(process, true);
        inodes += 1;
        change({ inode: inodes, version: 0, cells: [""], wal: emptyWal() });
      },
      /** Recovers the WAL. */
      open(): void {
        touch(process, false);
        showAll();
        Object.assign(contents.wal, { copied: 0, commits: 0 });
      },
      name: () => `${host.name}:${contents.inode}`,
      meta: () => state()[0],
      /** @param text in the next cell, or in the first one */
      commit(text: string, isMeta = false): void {
        touch(process, true);
        const { wal } = contents;
        if (wal.salt === "") wal.salt = newSalt();
        if (wal.frames.length > 0 && wal.copied === wal.frames.length)
          Object.assign(wal, { salt: newSalt(), frames: [], copied: 0 });
        const index = isMeta ? 0 : Math.max(1, state().length);
        append(wal, index, text);
        wal.shown = wal.frames.length;
        if (seen !== null) seen[index] = text;
        seenWords = null;
        wal.commits += 1;
      },
      /** The last connection copies the WAL to the file, and deletes it. */
      close(): void {
        touch(process, true);
        showAll();
        copyWal();
        change({ wal: emptyWal() });
      },
      /** What this server has created. */
      discard(): void {
        discard(process);
        write(process, { marker: null, next: null });
      },
      setAside: () => write(process, { cells: null, wal: emptyWal() }),
    }),
  };
}
