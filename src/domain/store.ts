import type { ArchivedRange, ArchiveOptions, ArchiveState, Promotion } from "./archive.ts";
import type { BulkStore } from "./bulk.ts";
import type { ChangeStore } from "./change.ts";
import type { CopySource, CopyTarget } from "./copy.ts";
import type { OrderImport, UserImport } from "./import-rules.ts";
import type { ObjectStorage } from "./object-storage.ts";
import type { OrderStore } from "./order.ts";
import type { RecordText } from "./record.ts";
import type { SumOrders } from "./sums.ts";
import type { TokenStore } from "./token.ts";
import type { User, UserStore } from "./user.ts";

export interface BackupSummary {
  readonly users: number;
  readonly orders: number;
  /** Including revoked and expired ones. */
  readonly tokens: number;
  readonly bytes: number;
  /** What needs attention, although it did not prevent the backup or the restore. */
  readonly warnings: readonly string[];
}

/** Called after each transaction is on disk. */
export type OnCommit = (writes: number, durationMs: number) => void;

export interface Store {
  readonly users: UserStore;
  readonly orders: OrderStore;
  readonly sumOrders: SumOrders;
  readonly tokens: TokenStore;
  readonly changes: ChangeStore;
  readonly bulk: {
    readonly users: BulkStore<UserImport>;
    readonly orders: BulkStore<OrderImport>;
  };
  /** @throws {AppError} unavailable if the database cannot be written; on a read-only server, if it cannot be read */
  checkUsable(): Promise<void>;
  statistics(): Promise<{
    readonly pendingWrites: number;
    readonly databaseBytes: number;
    /** Size of the write-ahead log; 0 on PostgreSQL. */
    readonly walBytes: number;
    /** Free bytes of the file system of the database; `null` on PostgreSQL, and if the directory was moved away. */
    readonly freeBytes: number | null;
    /** When the last backup was completed, in seconds since the Unix epoch; `null` if unknown. */
    readonly lastBackupS: number | null;
  }>;
  archive(): ArchiveState | null;
  /** @returns whether writes are acknowledged here, as far as this server knows: not by a standby */
  isPrimary(): boolean;
  /** @returns the age in seconds of the data of a standby, or of a server that may have been replaced unknowingly; else `null` */
  secondsBehind(): number | null;
  /** Others can write meanwhile. @throws {AppError} operator if the rows cannot be read */
  withCopySource<Result>(work: (source: CopySource) => Promise<Result>): Promise<Result>;
  /** @returns a sentence for each problem of all data, in one snapshot; empty if there is none */
  check(): Promise<readonly string[]>;
  /** As `ChangeStore.deleteExpired`, of idempotency keys. */
  deleteExpiredKeys(before: Date): Promise<boolean>;
  /** Replaces what idempotency keys have of a user by this text. They stay, so that no request is made again. */
  replaceResults(user: RecordText<User>): Promise<void>;
  /** Waits for queued writes, then closes. The store cannot be used afterwards. */
  close(): Promise<void>;
}

/**
 * What a database is opened for.
 * - `serve`: a server, or a migration. It migrates an older schema, and only one process can open a SQLite file like
 *   this.
 * - `serve-read-only`: a server that writes no row. It shares a SQLite file with others of its kind.
 * - `write`: a command. Any number can share a SQLite file with a server.
 * - `read`: a command that only reads. It leaves no trace in or next to a SQLite file that no process has open.
 * All but `serve` reject an older schema.
 */
export type StoreMode = "serve" | "serve-read-only" | "write" | "read";

export interface StoreOptions {
  /** A path (SQLite), or a URL (PostgreSQL). */
  readonly databaseUrl: string;
  readonly mode: StoreMode;
  readonly create: boolean;
  readonly now: () => Date;
  readonly onCommit?: OnCommit;
  /** Called after the schema was changed from a version to another. `from` is 0 if the database is new. */
  readonly onMigration?: (from: number, to: number) => void;
  /** Called with the reason when the database becomes unsafe to use, and with `null` when it is safe again. */
  readonly onStorageProblem?: (problem: string | null) => void;
  readonly archive?: ArchiveOptions;
  /** Of a standby: called with a store that only reads, and with `null` before that is closed, until the server takes over. */
  readonly onStandby?: (store: Store | null) => void;
  readonly onWarning?: (warning: string) => void;
}

interface RestoreOptions {
  /** Path of the backup, or an archive; `null` for its newest state. */
  readonly from: string | { readonly storage: ObjectStorage; readonly at: Date | null };
  readonly databaseUrl: string;
  readonly now: () => Date;
}

export interface BackUpOptions {
  readonly databaseUrl: string;
  readonly path: string;
  /** Cancels the backup, which then leaves no file. */
  readonly signal: AbortSignal;
}

/** A backup whose rows were not read, because its schema has another version. Its structure was verified. */
type UnreadBackup = Pick<BackupSummary, "bytes" | "warnings"> & { readonly schema_version: number };

interface RestoreResult extends BackupSummary {
  /** The time up to which an archive has all commits; `null` for a backup. */
  readonly archivedUntil: Date | null;
  /** Path that the previous database was moved to; `null` if there was none. */
  readonly previousPath: string | null;
  /** What was in it, and the time of its last change, `null` if it has none; `null` if it could not be read. */
  readonly previous: { users: number; orders: number; changedAt: Date | null } | null;
  /** Tokens that the backup had as valid and the previous database as revoked; `null` if that could not be read. */
  readonly revokedTokens: readonly string[] | null;
  /** Names of tokens that were valid in the previous database and that the backup does not have. */
  readonly lostTokens: readonly string[];
  readonly validTokens: readonly string[];
}

/**
 * Distributes the orders of a database over the workers of a cluster, with all rows, in one transaction.
 * @param onStart called before anything is locked
 * @returns whether it has done so: `false` if they were distributed before
 * @throws {AppError} operator
 */
export type DistributeStore = (
  databaseUrl: string,
  onStart: (orders: number, workers: number) => void,
) => Promise<boolean>;

/** What commands do with an archive. Each throws {AppError} operator if it is empty, or damaged where it is read. */
export interface ArchiveCommands {
  /**
   * Restores the newest state into a temporary file, and verifies it. @param databaseUrl path of a database, which need not
   * exist. The temporary file is in its directory, or in the nearest one above that exists
   */
  check(
    storage: ObjectStorage,
    databaseUrl: string,
  ): Promise<BackupSummary & { readonly archivedUntil: Date }>;
  /** Finds the times that can be restored, oldest first, without reading what is in the objects. */
  list(storage: ObjectStorage): Promise<readonly ArchivedRange[]>;
  /** Ends the newest log: a standby takes over immediately. @param isForced whether none needs to have announced itself */
  promote(storage: ObjectStorage, isForced: boolean, nowMs: number): Promise<Promotion>;
}

export interface Backend {
  /**
   * Opens a database. Creates it, or migrates its schema, if the options allow it.
   * @throws {AppError} operator if it cannot be opened, is newer or older than this program, or is in use by another
   * server
   */
  readonly open: (options: StoreOptions) => Promise<Store>;
  /**
   * Writes a copy of one snapshot to a new file, and verifies it. Others can write meanwhile.
   * @throws {AppError} operator if the file exists, or cannot be written
   * @throws the reason of `signal`, in the same words if it is an AppError
   */
  readonly backUp: (options: BackUpOptions) => Promise<BackupSummary | UnreadBackup>;
  /** Verifies a backup, and replaces a database with it. @throws {AppError} operator if it is damaged, or a server is running */
  readonly restore: (options: RestoreOptions) => Promise<RestoreResult>;
  /**
   * Runs work that fills a database which is new, or has a schema and no rows. The database is verified and on
   * disk before others see it. If that or the work fails, it has no rows.
   * @throws {AppError} operator if the database is not empty or cannot be filled
   */
  readonly withCopyTarget: <Result>(
    databaseUrl: string,
    work: (target: CopyTarget) => Promise<Result>,
  ) => Promise<Result>;
  /** `null` if databases of this kind cannot be distributed. */
  readonly distribute: DistributeStore | null;
  /** @returns whether a server that may write is known to use the database */
  readonly isServed: (databaseUrl: string) => boolean;
  /**
   * Call it before a command writes to an existing database.
   * @returns a function to call after the write. While a server is running, it waits until the archive has that, at most
   * five seconds. It returns `false` if the archive may lack it; `true` if it has it, or the database has no archive
   * @throws {AppError} operator (from that function) if the database was replaced meanwhile
   */
  readonly watchArchive: (databaseUrl: string) => () => Promise<boolean>;
}
