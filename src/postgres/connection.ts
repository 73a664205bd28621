import { SQL } from "bun";
import type { StoreOptions } from "../store.ts";
import { type Cell, formatCopyRows } from "./copy-format.ts";
import { isRetryable, toUnavailable } from "./errors.ts";
import { type Access, createLimiter, type Limiter } from "./limiter.ts";

/** How often work is run that was given up for another's, at most. */
const MAX_ATTEMPTS = 5;
/** How long it waits before it is run again, times the runs so far, at most. */
const RETRY_DELAY_MS = 20;

/** How long to wait for a connection to be made. */
const CONNECT_SECONDS = 5;
/** How long `close` waits for what is still running, and then for the server. */
const CLOSE_SECONDS = 5;

/**
 * What each connection asks of the server, unless the URL says otherwise: bounds, since a process that is
 * frozen in a transaction must not keep its locks; and that what is answered is on disk, whatever the
 * database or the role is set to.
 */
const settings = {
  application_name: "user-api",
  statement_timeout: 5_000,
  lock_timeout: 3_000,
  idle_in_transaction_session_timeout: 10_000,
  default_transaction_isolation: "read committed",
  synchronous_commit: "on",
};

export type Value = string | number | null | readonly string[] | readonly number[];

/** Where statements are sent. Their values are `$1`, `$2` … */
export interface Session {
  all<Row>(statement: string, ...values: Value[]): Promise<readonly Row[]>;
  /** `null` when there is no row. */
  first<Row>(statement: string, ...values: Value[]): Promise<Row | null>;
  /** Several statements without values. */
  script(statements: string): Promise<void>;
  /** @param into the table and its columns, as in `tokens (hash, name)` */
  copy(into: string, rows: Iterable<readonly Cell[]>): Promise<void>;
}

type Work<Result> = (session: Session) => Promise<Result>;

interface TransactionOptions {
  readonly access?: Access;
  /** What stands behind BEGIN, e.g. `read only`. */
  readonly mode?: string;
  /** How long it may take. */
  readonly timeout_ms?: number;
}

/** Work is run again when it was given up for another's, so it must change nothing but the database. */
export interface Database {
  /** @throws {AppError} unavailable */
  read<Result>(work: Work<Result>): Promise<Result>;
  /** Each statement is a transaction. @throws {AppError} unavailable */
  write<Result>(work: Work<Result>): Promise<Result>;
  /** One transaction. @throws {AppError} unavailable: also when nobody knows whether it was committed */
  transact<Result>(work: Work<Result>, options?: TransactionOptions): Promise<Result>;
  readonly limiter: Limiter;
  /** Waits for what is under way, as long as the server answers. */
  close(): Promise<void>;
}

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
 * Behind a pooler (`?prepare=false`) a connection is not ours, and takes no settings: there they are of
 * the role.
 */
function settingsFor(url: URL): Record<string, string | number> {
  if (url.searchParams.get("prepare") === "false") return {};
  const connection_settings = Object.entries(settings).filter(
    ([name]) => !url.searchParams.has(name),
  );
  return Object.fromEntries(connection_settings);
}

function createPool(database_url: string): SQL {
  const url = new URL(database_url);
  const database = decodeURIComponent(url.pathname.slice(1)) || url.searchParams.get("dbname");
  return new SQL(database_url, {
    adapter: "postgres",
    connectionTimeout: CONNECT_SECONDS,
    connection: settingsFor(url),
    // Otherwise PGDATABASE of the environment would win over the URL.
    ...(database !== null && { database }),
  });
}

/** Connects when first asked. @throws {TypeError} when the URL makes no sense */
export function connect({
  database_url,
  max_pending_writes,
  onCommit,
}: Pick<StoreOptions, "database_url" | "max_pending_writes" | "onCommit">): Database {
  let sql = createPool(database_url);
  let session = sessionOf(sql);
  let connected_ms = performance.now();

  /**
   * A network that is gone tells nobody: all that is sent on its connections would wait until the system
   * gives them up, for a quarter of an hour, and new ones may be well.
   * @param started_ms when the work began that has no answer: it may be of connections that are gone by now
   */
  function reconnect(started_ms: number): void {
    if (started_ms < connected_ms) return;
    const unresponsive = sql;
    sql = createPool(database_url);
    session = sessionOf(sql);
    connected_ms = performance.now();
    // Whoever waits for them is told; nobody waits for this.
    unresponsive.close({ timeout: 0 }).catch(() => {});
  }

  const connections = sql.options.max ?? 1;
  const limiter = createLimiter({ connections, max_pending_writes, onTimeout: reconnect });

  async function withRetry<Result>(work: () => Promise<Result>): Promise<Result> {
    for (let attempts = 1; ; attempts += 1) {
      try {
        return await work();
      } catch (error) {
        if (!isRetryable(error) || attempts === MAX_ATTEMPTS) throw toUnavailable(error);
        await Bun.sleep(Math.random() * RETRY_DELAY_MS * attempts);
      }
    }
  }

  /** A write is counted when it is done. */
  async function measure<Result>(work: () => Promise<Result>): Promise<Result> {
    const started_ms = performance.now();
    const result = await work();
    onCommit?.(1, performance.now() - started_ms);
    return result;
  }

  return {
    limiter,
    read: (work) => limiter.run("read", () => withRetry(() => work(session))),
    write: (work) => limiter.run("write", () => measure(() => withRetry(() => work(session)))),
    transact<Result>(
      work: Work<Result>,
      { access = "write", mode = "", timeout_ms }: TransactionOptions = {},
    ) {
      // Bun's type takes the result for a list of queries.
      const transaction = () => sql.begin(mode, (tx) => work(sessionOf(tx))) as Promise<Result>;
      const run = () => withRetry(transaction);
      return limiter.run(access, access === "write" ? () => measure(run) : run, timeout_ms);
    },
    async close() {
      await Promise.race([limiter.idle(), Bun.sleep(CLOSE_SECONDS * 1000)]);
      await sql.close({ timeout: CLOSE_SECONDS });
    },
  };
}
