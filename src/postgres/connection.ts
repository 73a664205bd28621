import { SQL } from "bun";
import { type PostgresLayout, splitLayout } from "../database-url.ts";
import type { LargePages } from "../large-page.ts";
import type { Store, StoreOptions } from "../store.ts";
import { createBatchQueue } from "./batch.ts";
import { withCitusSettings } from "./citus/settings.ts";
import { type Cell, formatCopyRows } from "./copy-format.ts";
import { isConstraintViolation, isRolledBack } from "./errors.ts";
import { type Access, createLimiter, type Limiter } from "./limiter.ts";
import type { ListReader } from "./lists.ts";
import type { Reader } from "./reader.ts";
import { withRetry } from "./retry.ts";
import type { Writer } from "./writer.ts";

/** Number of connections that changes leave to creates: two of them may wait for locked rows. */
const CREATE_CONNECTIONS = 3;

/** Timeout for connecting. */
const CONNECT_SECONDS = 5;
/** How long `close` waits for running work, and then again for the server. */
const CLOSE_SECONDS = 5;

/**
 * Settings of each connection; parameters of the URL override them. Timeouts are in milliseconds: they release
 * the locks of a process that hangs in a transaction. `synchronous_commit` overrides the setting of the database
 * or role, so that a commit is on disk before the response.
 */
const settings = {
  application_name: "user-api",
  statement_timeout: 5_000,
  lock_timeout: 3_000,
  idle_in_transaction_session_timeout: 10_000,
  default_transaction_isolation: "read committed",
  synchronous_commit: "on",
  // Otherwise a statement that is planned while a table is empty reads the whole table, until the next ANALYZE.
  enable_seqscan: "off",
  // The statements are short, but PostgreSQL overestimates their cost and would compile them.
  jit: "off",
};

export type Value = string | number | null | readonly string[] | readonly number[];

/** Runs statements on a connection. The values of a statement are `$1`, `$2` and so on. */
export interface Session {
  all<Row>(statement: string, ...values: Value[]): Promise<readonly Row[]>;
  /** @returns the first row; `null` if the result is empty */
  first<Row>(statement: string, ...values: Value[]): Promise<Row | null>;
  /** Runs several statements without values. */
  script(statements: string): Promise<void>;
  /** Inserts rows with COPY. @param into the table and its columns, as in `tokens (hash, name)` */
  copy(into: string, rows: Iterable<readonly Cell[]>): Promise<void>;
}

type Work<Result> = (session: Session) => Promise<Result>;

interface Change {
  readonly record: string;
  readonly run: () => Promise<unknown>;
}

interface TransactionOptions {
  readonly access?: Access;
  /** Options of BEGIN, e.g. `read only`. */
  readonly mode?: string;
  /** Timeout of the whole transaction. The default is that of the limiter. */
  readonly timeout_ms?: number;
  /** Whether the transaction may succeed after an error. The default is after a concurrent transaction. */
  readonly mayRetry?: (error: unknown) => boolean;
  /** The record that the transaction changes, as with `change`. */
  readonly record?: string;
}

/**
 * A pool of connections. Work is retried after a serialization failure or deadlock, so it must have no side
 * effects outside the database.
 */
export interface Database {
  /** @throws {AppError} unavailable if the database is unreachable or busy */
  read<Result>(work: Work<Result>): Promise<Result>;
  /**
   * Each statement is a separate transaction.
   * @throws {AppError} unavailable if the database is unreachable or busy
   */
  write<Result>(work: Work<Result>): Promise<Result>;
  /**
   * Like `write`, for a change of a record. Changes of one record run one after the other. All changes together leave
   * some connections to creates, because each change can wait for a locked row.
   * @param record identifies the record, e.g. `users 1`
   */
  change<Result>(record: string, work: Work<Result>): Promise<Result>;
  /**
   * Runs work in one transaction.
   * @throws {AppError} unavailable if the database is unreachable or busy; the transaction may be committed
   */
  transact<Result>(work: Work<Result>, options?: TransactionOptions): Promise<Result>;
  /**
   * Runs one statement for several requests, which `limiter.admit` has admitted.
   * @throws {AppError} unavailable if the database is unreachable or busy; the statement may be committed
   */
  readMany<Result>(work: Work<Result>): Promise<Result>;
  /**
   * Like `readMany`, for a number of writes. Also retries after a violated constraint: the statement reads what it
   * depends on, so it fails only if that has changed since.
   */
  writeMany<Result>(writes: number, work: Work<Result>): Promise<Result>;
  /**
   * Runs work in one transaction for a number of writes, which `limiter.admit` has admitted.
   * @throws {AppError} unavailable if the database is unreachable or busy; the transaction may be committed
   */
  transactMany<Result>(
    writes: number,
    work: Work<Result>,
    mayRetry?: (error: unknown) => boolean,
  ): Promise<Result>;
  readonly layout: PostgresLayout;
  readonly limiter: Limiter;
  /** Number of connections in the pool. */
  readonly connections: number;
  /** Waits for running work, with a timeout, then closes the connections. */
  close(): Promise<void>;
}

/** What the stores of a database share. */
export interface Connection {
  readonly db: Database;
  readonly reader: Reader;
  readonly large_pages: LargePages;
  readonly now: () => Date;
}

/** What the stores of the plain layout share. */
export interface PlainConnection extends Connection {
  readonly writer: Writer;
  readonly lists: ListReader;
}

/** The parts of a store that depend on the layout. */
export type LayoutStores = Pick<Store, "users" | "orders" | "bulk" | "withCopySource" | "check">;

function sessionOf(sql: SQL): Session {
  async function all<Row>(statement: string, ...values: Value[]): Promise<readonly Row[]> {
    return sql.unsafe<Row[]>(statement, values);
  }
  return {
    all,
    async first<Row>(statement: string, ...values: Value[]) {
      return (await all<Row>(statement, ...values))[0] ?? null;
    },
    async script(statements) {
      await sql.unsafe(statements).simple();
    },
    async copy(into, rows) {
      const writer = sql.unsafe(`copy ${into} from stdin`).writable().getWriter();
      for (const chunk of formatCopyRows(rows)) await writer.write(chunk);
      await writer.close();
    },
  };
}

/**
 * A pooler (`?prepare=false`) shares connections between clients and rejects settings: they must be set on the
 * role instead.
 */
function settingsFor(url: URL): Record<string, string | number> {
  if (url.searchParams.get("prepare") === "false") return {};
  const connection_settings = Object.entries(settings).filter(
    ([name]) => !url.searchParams.has(name),
  );
  return Object.fromEntries(connection_settings);
}

function createPool(server_url: string): SQL {
  const url = new URL(server_url);
  const database = decodeURIComponent(url.pathname.slice(1)) || url.searchParams.get("dbname");
  return new SQL(server_url, {
    adapter: "postgres",
    connectionTimeout: CONNECT_SECONDS,
    connection: settingsFor(url),
    // Otherwise PGDATABASE in the environment would override the URL.
    ...(database !== null && { database }),
  });
}

/**
 * Creates the pool. The first statement opens a connection.
 * @throws {TypeError} if the URL is invalid
 */
export function connect({
  database_url,
  max_pending_writes,
  onCommit,
}: Pick<StoreOptions, "database_url" | "max_pending_writes" | "onCommit">): Database {
  const { layout, driver_url } = splitLayout(database_url);
  const server_url = layout === "citus" ? withCitusSettings(driver_url) : driver_url;
  let sql = createPool(server_url);
  let session = sessionOf(sql);
  let connected_ms = performance.now();

  /**
   * Replaces the pool. If the network drops packets, statements on the old connections fail only when the system
   * gives these up, after a quarter of an hour, while new connections may work.
   * @param started_ms when the timed-out work started; work of an earlier pool is ignored
   */
  function reconnect(started_ms: number): void {
    if (started_ms < connected_ms) return;
    const unresponsive = sql;
    sql = createPool(server_url);
    session = sessionOf(sql);
    connected_ms = performance.now();
    // The pending statements reject on their own. No caller waits for the old pool to close.
    unresponsive.close({ timeout: 0 }).catch(() => {});
  }

  const connections = sql.options.max ?? 1;
  const limiter = createLimiter({ connections, max_pending_writes, onTimeout: reconnect });

  /** Reports the duration of writes, including retries, after they succeeded. */
  async function measure<Result>(writes: number, work: () => Promise<Result>): Promise<Result> {
    const started_ms = performance.now();
    const result = await work();
    onCommit?.(writes, performance.now() - started_ms);
    return result;
  }

  function readMany<Result>(work: Work<Result>): Promise<Result> {
    return limiter.run("read", () => withRetry(() => work(session)));
  }

  function runWrites<Result>(
    writes: number,
    work: Work<Result>,
    mayRetry?: (error: unknown) => boolean,
  ): Promise<Result> {
    const run = () => withRetry(() => work(session), mayRetry);
    return limiter.run("write", () => measure(writes, run));
  }

  function begin<Result>(work: Work<Result>, mode = ""): Promise<Result> {
    // Bun's type assumes that the result is a list of queries.
    return sql.begin(mode, (tx) => work(sessionOf(tx))) as Promise<Result>;
  }

  const enqueueChange = createBatchQueue<Change, unknown>({
    run: async ([change]) => [await change?.run()],
    max_items: 1,
    max_batches: Math.max(1, limiter.write_connections - CREATE_CONNECTIONS),
    conflictKeysOf: ({ record }) => [record],
  });

  function runInTurn<Result>(record: string, run: () => Promise<Result>): Promise<Result> {
    return enqueueChange({ record, run }) as Promise<Result>;
  }

  return {
    layout,
    limiter,
    connections,
    read: (work) => limiter.admit("read", () => readMany(work)),
    write: (work) => limiter.admit("write", () => runWrites(1, work)),
    change: (record, work) =>
      limiter.admit("write", () => runInTurn(record, () => runWrites(1, work))),
    readMany,
    writeMany: (writes, work) =>
      runWrites(writes, work, (error) => isRolledBack(error) || isConstraintViolation(error)),
    transactMany(writes, work, mayRetry) {
      const run = () => withRetry(() => begin(work), mayRetry);
      return limiter.run("write", () => measure(writes, run));
    },
    transact<Result>(
      work: Work<Result>,
      { access = "write", mode, timeout_ms, mayRetry, record }: TransactionOptions = {},
    ) {
      // Work without a timeout can take longer than others before it fails.
      const retry_ms = timeout_ms === Number.POSITIVE_INFINITY ? timeout_ms : undefined;
      const retried = () => withRetry(() => begin(work, mode), mayRetry, retry_ms);
      const run = access === "write" ? () => measure(1, retried) : retried;
      const start = () => limiter.run(access, run, timeout_ms);
      return limiter.admit(access, () =>
        record === undefined ? start() : runInTurn(record, start),
      );
    },
    async close() {
      await Promise.race([limiter.idle(), Bun.sleep(CLOSE_SECONDS * 1000)]);
      await sql.close({ timeout: CLOSE_SECONDS });
    },
  };
}
