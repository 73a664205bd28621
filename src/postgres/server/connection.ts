import { SQL } from "bun";
import type { CopyRow } from "../../domain/copy.ts";
import type { StoreMode, StoreOptions } from "../../domain/store.ts";
import { createConnectionQueues, type Kind } from "./connection-queues.ts";
import { isReadOnly } from "./errors.ts";
import { createPool } from "./pool.ts";
import { withRetry } from "./retry.ts";

/** How long `close` waits for running work. A server that stops has already given it SHUTDOWN_SECONDS. */
const CLOSE_MS = 1_000;
/** Sessions end after 5 to 10 minutes, at random, between statements: servers and proxies keep what an old session has. */
const MIN_LIFETIME_S = 300;

/** How long a write waits for a row that another transaction has locked, if others share its statement. */
export const BATCH_LOCK_TIMEOUT_MS = 200;

/**
 * Settings of each connection; parameters of the URL override them. Timeouts are in milliseconds: they release
 * the locks of a process that hangs in a transaction. `synchronous_commit` overrides the setting of the database
 * or role, so that a commit is on disk before the response.
 */
const commonSettings = {
  statement_timeout: 5_000,
  lock_timeout: BATCH_LOCK_TIMEOUT_MS,
  idle_in_transaction_session_timeout: 10_000,
  default_transaction_isolation: "read committed",
  synchronous_commit: "on",
  // A policy that hides rows is an error, instead of a list without them.
  row_security: "off",
  // The statements are short, but PostgreSQL overestimates their cost and would compile them.
  jit: "off",
  // PostgreSQL reads small tables as a whole, and would keep such a plan for a minute, in which a table can become large.
  enable_seqscan: "off",
  // In seconds. Otherwise the server keeps a connection that the network has lost for more than two hours.
  tcp_keepalives_idle: 60,
  tcp_keepalives_interval: 10,
  tcp_keepalives_count: 3,
};

export type Value = string | number | null | readonly string[] | readonly number[];

export type Session = ReturnType<typeof sessionOf>;

type Work<Result> = (session: Session) => Promise<Result>;

interface RunOptions {
  readonly client?: string | undefined;
  /** One transaction, which sees one snapshot if it only reads. Otherwise, each statement is one. */
  readonly transaction?: boolean;
  /** For a lock. With it, the work is one transaction. The default is that of the connection. */
  readonly lockTimeoutMs?: number;
  /** With all retries. Without end, the statements of a transaction have no timeout either. */
  readonly timeoutMs?: number;
  /** Whether the work may succeed after an error. The default is after a concurrent transaction. */
  readonly mayRetry?: (error: unknown) => boolean;
  /** Number of requests that share a write. The default is one. */
  readonly requests?: number;
}

export const longTransaction: RunOptions = {
  transaction: true,
  timeoutMs: Number.POSITIVE_INFINITY,
};

export type Settings = Readonly<Record<string, string | number>>;

export type Database = ReturnType<typeof connect>;

/** Makes numbers of int8 values, all of which are exact. In SQL, PostgreSQL could round floating point to 15 digits. */
function withNumbers<Row>(rows: Row[]): readonly Row[] {
  for (const row of rows as Record<string, unknown>[]) {
    // Not `entries`, which takes five times as long.
    for (const name of Object.keys(row))
      if (typeof row[name] === "bigint") row[name] = Number(row[name]);
  }
  return rows;
}

function sessionOf(sql: () => SQL) {
  async function all<Row>(statement: string, ...values: Value[]): Promise<readonly Row[]> {
    return withNumbers(await sql().unsafe<Row[]>(statement, values));
  }
  return {
    all,
    async first<Row>(statement: string, ...values: Value[]): Promise<Row | null> {
      return (await all<Row>(statement, ...values))[0] ?? null;
    },
    async script(statements: string): Promise<void> {
      await sql().unsafe(statements).simple();
    },
    async insert(table: string, columns: readonly string[], rows: readonly CopyRow[]) {
      if (rows.length === 0) return;
      const names = columns.join(", ");
      const given = `pg_catalog.json_populate_recordset(null::${table}, $1::text::json)`;
      const statement = `insert into ${table} (${names}) select ${names} from ${given}`;
      await all(statement, JSON.stringify(rows));
    },
  };
}

export type Filters = Readonly<
  Record<string, string | number | readonly number[] | readonly string[] | undefined>
>;

const comparisons: Readonly<Record<string, string>> = {
  created_from: "created_at >=",
  created_to: "created_at <",
};

/** Runs no statement if a filter is an array without values. */
export async function selectWhere<Row>(
  session: Session,
  columns: string,
  table: string,
  filters: Filters,
): Promise<readonly Row[]> {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined);
  if (given.some(([, value]) => Array.isArray(value) && value.length === 0)) return [];
  const conditions = given.map(([name, value], at) => {
    const sample = Array.isArray(value) ? value[0] : value;
    const type = typeof sample === "number" ? "bigint" : "text";
    if (typeof value === "object") return `${name} = any($${at + 1}::${type}[])`;
    return `${comparisons[name] ?? `${name} =`} $${at + 1}::${type}`;
  });
  const select = `select ${columns} from ${table} where ${conditions.join(" and ")}`;
  return session.all(select, ...given.map(([, value]) => value as Value));
}

function hasPooler(driverUrl: string): boolean {
  return new URL(driverUrl).searchParams.get("prepare") === "false";
}

function settingsOf(driverUrl: string, placementSettings: Settings, mode?: StoreMode): Settings {
  const { searchParams } = new URL(driverUrl);
  const readOnly = mode === "serve-read-only";
  // A separate name, because the pool asks PostgreSQL for the statements with its name. A pooler sets the name whenever
  // a connection changes hands, so servers behind one share it.
  const isShared = hasPooler(driverUrl) && (mode === "serve" || readOnly);
  const all = Object.entries({
    application_name: isShared ? "user-api" : `user-api ${crypto.randomUUID().slice(0, 8)}`,
    ...commonSettings,
    ...placementSettings,
    ...(readOnly && { default_transaction_read_only: "on" }),
  });
  return Object.fromEntries(all.filter(([name]) => !searchParams.has(name)));
}

function openConnections(driverUrl: string, settings: Settings, max?: number): SQL {
  const { pathname, searchParams } = new URL(driverUrl);
  // A pooler rejects settings other than the name: they must be set on the role.
  const isSent = (name: string) => name === "application_name" || !hasPooler(driverUrl);
  const sent = Object.entries(settings).filter(([name]) => isSent(name));
  const database = decodeURIComponent(pathname.slice(1)) || searchParams.get("dbname");
  return new SQL(driverUrl, {
    adapter: "postgres",
    bigint: true,
    connectionTimeout: 5,
    maxLifetime: MIN_LIFETIME_S * (1 + Math.random()),
    connection: Object.fromEntries(sent),
    // Otherwise PGDATABASE in the environment would override the URL.
    ...(database !== null && { database }),
    ...(max !== undefined && { max }),
  });
}

export type ConnectOptions = Pick<StoreOptions, "databaseUrl" | "onCommit"> &
  Partial<Pick<StoreOptions, "mode">>;

/** Creates the pool. The first statement opens a connection. @throws {TypeError} if the URL is invalid */
export function connect(options: ConnectOptions, placementSettings: Settings = {}) {
  const { databaseUrl, onCommit, mode } = options;
  const settings = settingsOf(databaseUrl, placementSettings, mode);
  const pool = createPool((max) => openConnections(databaseUrl, settings, max));
  const session = sessionOf(pool.sql);
  const connections = pool.sql().options.max ?? 1;
  const queues = createConnectionQueues({ connections, onTimeout: pool.checkUntil });

  const writeListeners: (() => void)[] = [];
  const errorListeners: ((error: unknown) => void)[] = [];
  const reportError = (error: unknown) => {
    if (isReadOnly(error)) void pool.leaveReadOnly();
    for (const listener of errorListeners) listener(error);
  };

  function begin<Result>(kind: Kind, work: Work<Result>, options: RunOptions): Promise<Result> {
    const { lockTimeoutMs, timeoutMs } = options;
    const isReadOnly = kind === "read" || kind === "list";
    const mode = isReadOnly ? "isolation level repeatable read, read only" : "";
    const run = async (tx: SQL) => {
      const inTransaction = sessionOf(() => tx);
      // Not by `set_config`: workers of Citus would not know them.
      if (lockTimeoutMs !== undefined)
        await inTransaction.script(`set local lock_timeout = ${lockTimeoutMs}`);
      if (timeoutMs === Number.POSITIVE_INFINITY)
        await inTransaction.script("set local statement_timeout = 0");
      return work(inTransaction);
    };
    // Bun's type assumes that the result is a list of queries.
    return pool.sql().begin(mode, run) as Promise<Result>;
  }

  async function close(): Promise<void> {
    await Promise.race([queues.idle(), Bun.sleep(CLOSE_MS)]);
    await pool.close();
  }

  return {
    /** Settings that connections should have, without those that parameters of the URL override. */
    settings,
    shares: queues.shares,
    /**
     * Runs work on a connection as soon as one is free, again after a serialization failure or deadlock: it must have no other
     * effects. @throws {AppError} unavailable if the database is unreachable or busy; a write may be committed
     */
    run<Result>(kind: Kind, work: Work<Result>, limits: RunOptions = {}): Promise<Result> {
      const { lockTimeoutMs, timeoutMs, mayRetry, requests = 1, client } = limits;
      const isOne = limits.transaction === true || lockTimeoutMs !== undefined;
      const attempt = () => (isOne ? begin(kind, work, limits) : work(session));
      const retried = () => withRetry(attempt, mayRetry, timeoutMs, reportError);
      if (kind !== "write") return queues.run(kind, retried, timeoutMs, client);
      const reported = async () => {
        const startedMs = performance.now();
        const result = await retried();
        onCommit?.(requests, performance.now() - startedMs);
        for (const listener of writeListeners) listener();
        return result;
      };
      return queues.run(kind, reported, timeoutMs);
    },
    onWrite: (listener: () => void) => void writeListeners.push(listener),
    /** @param listener called with each error of work, before it is retried */
    onError: (listener: (error: unknown) => void) => void errorListeners.push(listener),
    close,
    [Symbol.asyncDispose]: close,
  };
}
