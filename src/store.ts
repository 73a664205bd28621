import type { CopySource, CopyTarget } from "./copy.ts";
import type { PostgresLayout } from "./database-url.ts";
import type { BulkStore } from "./import.ts";
import type { Order, OrderImport, OrderStore } from "./order.ts";
import type { Token, TokenStore } from "./token.ts";
import type { User, UserImport, UserStore } from "./user.ts";

/** What a copy of a database holds. */
export interface BackupSummary {
  readonly users: number;
  readonly orders: number;
  /** Revoked and expired ones among them. */
  readonly tokens: number;
  readonly bytes: number;
}

/** Told the part that is done, 0 to 1, now and then. */
export type OnProgress = (fraction: number) => void;

/** Told of each transaction that is on disk: how many writes it held, and how long it took. */
export type OnCommit = (writes: number, duration_ms: number) => void;

/** How a database is at the moment. */
export interface Statistics {
  /** Writes that wait for the disk. */
  readonly pending_writes: number;
  /** Of large pages that are being built or sent. */
  readonly unsent_bytes: number;
  readonly database_bytes: number;
  /** Of the write-ahead log. */
  readonly wal_bytes: number;
}

/**
 * Reads of one row that are done by the return, with all writes that have resolved. To wait costs, even for what
 * is there already: Bun has to keep a request that is not answered by then, and each promise is garbage.
 */
export interface SyncReads {
  /** As {@link UserStore.get}. */
  user(id: number): User | null;
  /** As {@link OrderStore.get}. */
  order(id: number): Order | null;
  /** As {@link TokenStore.find}: revoked and expired ones, too. */
  token(hash: string): Token | null;
}

/** All that is asked of a database. */
export interface Store {
  readonly users: UserStore;
  readonly orders: OrderStore;
  readonly tokens: TokenStore;
  /** `null` for a database that has to be waited for. */
  readonly sync_reads: SyncReads | null;
  /** How all users, and all orders, come out and go in. */
  readonly bulk: {
    readonly users: BulkStore<User, UserImport>;
    readonly orders: BulkStore<Order, OrderImport>;
  };
  /** @throws {AppError} unavailable when the database cannot be written */
  checkWritable(): Promise<void>;
  statistics(): Promise<Statistics>;
  /**
   * Writes a whole copy into a new file, from one snapshot, while others write, and proves it good.
   * @param signal ends it, and nothing is left
   * @throws {AppError} operator when there is such a file, or the copy cannot be made
   */
  backUp(path: string, onProgress: OnProgress, signal: AbortSignal): Promise<BackupSummary>;
  /**
   * Runs work on all rows as they are now, while others write.
   * @throws {AppError} operator when they cannot be read
   */
  withCopySource<Result>(work: (withCopySource: CopySource) => Promise<Result>): Promise<Result>;
  /**
   * Walks all there is, from one snapshot.
   * @returns what is wrong, a sentence each; empty for a sound database
   */
  check(): Promise<readonly string[]>;
  /** Forgets idempotency keys that are past their lifetime. */
  deleteExpiredKeys(): Promise<void>;
  /** Waits for writes under way, then closes. The store is of no use afterwards. */
  close(): Promise<void>;
}

export interface StoreOptions {
  /** A path (SQLite), or a URL (PostgreSQL). */
  readonly database_url: string;
  /** Table layout on PostgreSQL; `plain` by default. */
  readonly postgres_layout?: PostgresLayout;
  /** Writes that wait for the disk at most; one more is refused as unavailable. */
  readonly max_pending_writes: number;
  /** Bytes of large pages that are being built or sent; beyond them a large page is rejected as unavailable. */
  readonly max_unsent_bytes: number;
  /** Only one process at a time may serve a SQLite file; any number may open it beside. */
  readonly exclusive: boolean;
  /** Whether a database that is not there is made. */
  readonly create: boolean;
  readonly now: () => Date;
  readonly onCommit?: OnCommit;
  /** Called once when the database can no longer be used safely, with the reason, and with `null` when it can again. */
  readonly onStorageProblem?: (problem: string | null) => void;
}

export interface RestoreOptions {
  /** Path of the backup. */
  readonly from: string;
  readonly database_url: string;
  readonly now: () => Date;
}

export interface RestoreResult extends BackupSummary {
  /** Path that the previous database was moved to; `null` if there was none. */
  readonly previous_path: string | null;
}

/**
 * Opens a database. Creates it or updates its schema if that is safe.
 * @throws {AppError} operator if it cannot be opened, is newer than this program, or is in use by another server
 */
export type OpenStore = (options: StoreOptions) => Promise<Store>;

/**
 * Replaces a database with a backup after verifying the backup.
 * @throws {AppError} operator if the backup is damaged, or a server uses the database
 */
export type RestoreStore = (options: RestoreOptions) => Promise<RestoreResult>;

/**
 * Runs work that fills a database which is new, or has a schema and no rows. The database is verified and on
 * disk before others see it. If that or the work fails, it has no rows.
 * @throws {AppError} operator if the database is not empty or cannot be filled
 */
export type WithCopyTarget = <Result>(
  options: Pick<StoreOptions, "database_url" | "postgres_layout">,
  work: (target: CopyTarget) => Promise<Result>,
) => Promise<Result>;

/** A kind of database, with everything that can be done to one. */
export interface Backend {
  readonly open: OpenStore;
  readonly restore: RestoreStore;
  readonly copyTarget: WithCopyTarget;
}
