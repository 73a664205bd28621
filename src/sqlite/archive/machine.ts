/**
 * What the archive needs of the machine that it runs on: time, names, and the files of one database. Nothing else in
 * `archive/` knows a clock, a random number or a file system, so that tests run whole machines in one thread.
 */
import type { Clock } from "../../base/clock.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import type { ObjectId } from "./keys.ts";

/** Where a part of the WAL ends. */
export interface WalPosition {
  /** Identifies the WAL since its last restart. In hexadecimal. */
  readonly salt: string;
  /** In bytes; 0 at the beginning of the WAL. */
  readonly offset: number;
  /** Checksum in the last frame before the offset, over everything since the restart; empty if there is none. */
  readonly checksum: string;
}

export function isSamePosition(one: WalPosition | null, other: WalPosition): boolean {
  return one?.salt === other.salt && one.offset === other.offset && one.checksum === other.checksum;
}

/** Consecutive frames, after the header of the WAL if they are its first ones. */
export interface WalPart {
  readonly salt: string;
  readonly offset: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly end: WalPosition;
}

export interface WalPlace extends Omit<WalPart, "bytes"> {
  /** Where the part before it ends; `null` if the history begins with this one. */
  readonly previous: WalPosition | null;
}

export interface Machine extends Clock {
  /** @returns a text that no other call has returned or will return, anywhere */
  readonly newId: () => string;
  readonly compress: (bytes: Uint8Array<ArrayBuffer>) => Promise<Uint8Array<ArrayBuffer>>;
}

/** Reads the WAL from a position on, and proves that nothing in between was missed. */
export interface WalReader {
  /** @returns whole frames; `null` at the end. @throws {Error} if the WAL was restarted and parts of it may be lost */
  read(): WalPart | null;
  unreadBytes(): number;
}

/** Keeps other processes from restarting the WAL before its end has been read. */
export interface WalPin extends Disposable {
  /** Copies the WAL to the database if `read` has read it to its end. @returns whether it has */
  checkpoint(read: () => boolean): boolean;
  /** As `checkpoint`, then runs work, while no process can commit. @returns whether the work ran */
  complete(read: () => boolean, work: () => void): boolean;
}

/** How far a database has come. It tells an older state, or another history, from a later state. */
export interface Progress {
  /** Each number only grows, unless an older state is put in the place of the database. */
  readonly changes: number;
  readonly lastChange: string | null;
  readonly tokens: number;
  readonly revokedTokens: number;
}

export interface ProgressReader extends Disposable {
  /** @returns `null` if the database cannot be read, or has another schema */
  read(): Progress | null;
  /** @returns whether that other state has, or may have, writes that this database does not have */
  lacks(archived: Progress): boolean;
}

/** The copy of a database that a standby keeps, while others read it. */
export interface Copy extends Disposable {
  /** Appends the next part. Others see it after `show`. @returns whether the WAL has what is before it */
  append(place: WalPlace, bytes: Uint8Array): boolean;
  /** @throws {AppError} operator if SQLite rejects a part of the WAL */
  show(): void;
  /** Copies the WAL to the database, and empties it. @returns why that is not possible now; `null` if it was done */
  truncateWal(): string | null;
}

export interface OpenDatabase {
  /** @returns the size of the WAL up to the last commit, in bytes */
  walBytes(): number;
  /** @returns whether the WAL continues after this position, of which a part was read earlier */
  continuesAt(position: WalPosition): boolean;
  beginning(): WalPosition;
  /** @param start a position in the WAL as it is now */
  readWal(start: WalPosition): WalReader;
  /** @returns this part of the database file: shorter at its end, empty after it */
  readFile(at: number, length: number): Uint8Array<ArrayBuffer>;
  fileBytes(): number;
  pinWal(): WalPin;
  openProgress(): ProgressReader;
  /** @param start where the last segment in it ends; `null` if there is none */
  openCopy(start: WalPosition | null): Copy;
}

/** A file next to the database that says which part of its archive belongs to it. */
export interface ArchiveMarker {
  readonly archive: string | null;
  /** Names of the last generations that this database has begun, or tried to, newest first. */
  readonly names: readonly string[];
  /** The last segment, and the state of the file, when a server had archived all of it and stopped; `null` if none has. */
  readonly complete: (ObjectId & { readonly file: string }) | null;
  /** Set if the database was restored: the newest state of the archive then. It counts only while it still is. */
  readonly restored: {
    /** Names of generations to one of which that state belongs. */
    readonly names: readonly string[];
    /** Its last segment; `null` if it is unknown, after the restore of a backup. */
    readonly last: ObjectId | null;
  } | null;
  /** Whether it is the copy of a standby, which no other server may write to: its WAL has segments after `complete`. */
  readonly isCopy: boolean;
}

/** What a database is rebuilt from: a base, then parts of the WAL. */
export interface RestoreTarget {
  /** Begins anew with an empty file: an attempt with a newer base may have left something. */
  beginFile(): void;
  appendFile(bytes: Uint8Array): void;
  /** @returns whether the part continues the one before it */
  appendWal(place: Pick<WalPosition, "salt" | "offset">, bytes: Uint8Array): boolean;
  /** Ends the file, and applies all parts of the WAL. @throws {AppError} operator if SQLite rejects one */
  endWal(): void;
}

/** A restored database that has no name yet. It is deleted if it was not published. */
export interface RestoredFile extends RestoreTarget, Disposable {
  /** Gives it its name. From then on the marker is valid, also after a crash. @throws {AppError} operator if it is damaged */
  publish(markerOf: (state: string) => ArchiveMarker): void;
}

/** The files of a database, on the disk of a machine. Any call can fail with an I/O error, e.g. on a full disk. */
export interface DatabaseFiles {
  readonly path: string;
  readonly holder: string;
  /** @returns an identity that no other running process has; a process that had it before has ended */
  lockIdentity(): string;
  /** @returns the size of the database file, in bytes; 0 if there is none */
  bytes(): number;
  walBytes(): number;
  /** @returns a value that changes with every write to the database file; empty if there is none */
  state(): string;
  freeBytes(): number | null;
  /** @returns `null` if there is none that can be parsed. @throws {AppError} operator if this process may not read it */
  readMarker(): ArchiveMarker | null;
  writeMarker(marker: ArchiveMarker): void;
  /** Why an archive is not used that has another id than the marker, or none. */
  readonly notTheArchive: string;
  /** Writes, syncs and deletes a file next to it. @throws {AppError} unavailable if the disk is full, read-only or fails */
  requireWritable(): void;
  /** Notes that the archive has all commits up to this time, for commands. It does not fail. */
  noteArchived(timeMs: number): void;
  discard(): void;
  /** Deletes the WAL of a database that no process has open. */
  discardWal(): void;
  /** @returns the parts of a new WAL, which `publish` puts in the place of the WAL */
  beginWal(): Disposable & { write(bytes: Uint8Array, offset: number): void; publish(): void };
  /** @throws {AppError} operator if there is a database already that is no copy of a standby */
  beginRestore(): RestoredFile;
  /** @param descriptors of the files, which stay open */
  open(descriptors: FileDescriptors): OpenDatabase;
}
