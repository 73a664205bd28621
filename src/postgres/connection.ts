import { SQL } from "bun";
import type { StoreOptions } from "../store.ts";
import { type Cell, copyChunks } from "./copy.ts";
import { asUnavailable, mayRunAgain } from "./failures.ts";
import { createGate, type Gate, type Kind } from "./gate.ts";

/** How often work is run that was given up for another's, at most. */
const MAX_RUNS = 5;
/** How long it waits before it is run again, times the runs so far, at most. */
const AGAIN_MS = 20;

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
  readonly kind?: Kind;
  /** What stands behind BEGIN, e.g. `read only`. */
  readonly mode?: string;
  /** How long it may take. */
  readonly patience_ms?: number;
}

/** Work is run again when it was given up for another's, so it must change nothing but the database. */
export interface Database {
  /** @throws {AppError} unavailable */
  read<Result>(work: Work<Result>): Promise<Result>;
  /** Each statement is a transaction. @throws {AppError} unavailable */
  change<Result>(work: Work<Result>): Promise<Result>;
  /** One transaction. @throws {AppError} unavailable: also when nobody knows whether it was committed */
  transact<Result>(work: Work<Result>, options?: TransactionOptions): Promise<Result>;
  readonly gate: Gate;
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
      for (const chunk of copyChunks(rows)) await writer.write(chunk);
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
  const given = Object.entries(settings).filter(([name]) => !url.searchParams.has(name));
  return Object.fromEntries(given);
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
  let plain = sessionOf(sql);
  let made_ms = performance.now();

  /**
   * A network that is gone tells nobody: all that is sent on its connections would wait until the system
   * gives them up, for a quarter of an hour, and new ones may be well.
   * @param began_ms when the work began that has no answer: it may be of connections that are gone by now
   */
  function reconnect(began_ms: number): void {
    if (began_ms < made_ms) return;
    const silent = sql;
    sql = createPool(database_url);
    plain = sessionOf(sql);
    made_ms = performance.now();
    // Whoever waits for them is told; nobody waits for this.
    silent.close({ timeout: 0 }).catch(() => {});
  }

  const places = sql.options.max ?? 1;
  const gate = createGate({ places, max_pending_writes, onSilence: reconnect });

  async function untilDone<Result>(work: () => Promise<Result>): Promise<Result> {
    for (let runs = 1; ; runs += 1) {
      try {
        return await work();
      } catch (error) {
        if (!mayRunAgain(error) || runs === MAX_RUNS) throw asUnavailable(error);
        await Bun.sleep(Math.random() * AGAIN_MS * runs);
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
    gate,
    read: (work) => gate.run("read", () => untilDone(() => work(plain))),
    change: (work) => gate.run("write", () => measure(() => untilDone(() => work(plain)))),
    transact<Result>(
      work: Work<Result>,
      { kind = "write", mode = "", patience_ms }: TransactionOptions = {},
    ) {
      // Bun's type takes the result for a list of queries.
      const once = () => sql.begin(mode, (tx) => work(sessionOf(tx))) as Promise<Result>;
      const run = () => untilDone(once);
      return gate.run(kind, kind === "write" ? () => measure(run) : run, patience_ms);
    },
    async close() {
      await Promise.race([gate.idle(), Bun.sleep(CLOSE_SECONDS * 1000)]);
      await sql.close({ timeout: CLOSE_SECONDS });
    },
  };
}
