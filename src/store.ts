import type { OrderStore } from "./order.ts";
import type { TokenStore } from "./token.ts";
import type { UserStore } from "./user.ts";

/** All that is asked of a database. */
export interface Store {
  readonly users: UserStore;
  readonly orders: OrderStore;
  readonly tokens: TokenStore;
  /** @throws when the database does not answer */
  ping(): Promise<void>;
  /**
   * Walks all there is, from one snapshot.
   * @returns what is wrong, a sentence each; empty for a sound database
   */
  check(): Promise<readonly string[]>;
  /** Forgets idempotency keys that are past their lifetime. */
  sweep(): Promise<void>;
  /** Waits for writes under way, then closes. The store is of no use afterwards. */
  close(): Promise<void>;
}

export interface StoreOptions {
  /** A path (SQLite). */
  readonly database_url: string;
  /** Writes that wait for the disk at most; one more is refused as unavailable. */
  readonly max_pending_writes: number;
  /** Only one process at a time may serve a database; any number may open it beside. */
  readonly exclusive: boolean;
  /** Whether a database that is not there is made. */
  readonly create: boolean;
  readonly now: () => Date;
}

/**
 * Opens a database, and makes it or brings its schema up to date where that is safe.
 * @throws {AppError} operator when it cannot be opened, is newer than this program, or is being served
 */
export type OpenStore = (options: StoreOptions) => Promise<Store>;
