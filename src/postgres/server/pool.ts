/**
 * The connections to the server. They are replaced if the network has lost them, because statements on them would fail
 * only when the system gives them up, after a quarter of an hour. They are kept while the server runs their statements,
 * e.g. commits that wait for a standby: it would not notice that they are closed, and keep the old ones beside the new.
 * They are also replaced if their server rejects writes and the endpoint leads to one that takes them, e.g. after it has
 * led to a standby for a moment.
 */
import type { SQL } from "bun";

const timing = {
  checkIntervalMs: 10_000,
  checkTimeoutMs: 5_000,
  replaceIntervalMs: 60_000,
  /** Minimum time from one question whether the endpoint leads to a server that takes writes to the next. */
  writableIntervalMs: 1_000,
  /** A statement that has run for less is not one of those that hang: another process may have just begun it. */
  runningMs: 1_000,
};

/** Whether the server runs a statement of this process for long. Servers behind a pooler share their name. */
const isRunning = `
  select pg_catalog.count(*) > 0 as running
  from pg_catalog.pg_stat_activity
  where datname = pg_catalog.current_database()
    and application_name = pg_catalog.current_setting('application_name')
    and pid <> pg_catalog.pg_backend_pid()
    and state = 'active'
    and query_start < pg_catalog.clock_timestamp() - $1::float8 * interval '1 millisecond'
`;

const isWritable = `
  select pg_catalog.current_setting('transaction_read_only') = 'off' as writable
`;

/** Replacements in a row, soon after one another, because of an endpoint that leads to a standby by turns. */
const MAX_IN_ROW = 20;
/** From then on, the time between two of them doubles up to this. */
const MAX_WRITABLE_INTERVAL_MS = 30_000;

/** How long the statements on replaced connections may go on. */
const END_S = 5;

/** @param open opens connections; `max` is their number, by default that of the URL */
export function createPool(
  open: (max?: number) => SQL,
  { checkIntervalMs, checkTimeoutMs, replaceIntervalMs, runningMs, writableIntervalMs } = timing,
  nowMs = () => performance.now(),
) {
  let sql = open();
  let replacedMs = Number.NEGATIVE_INFINITY;
  let overdue = 0;
  let checking = false;
  let writableMs = Number.NEGATIVE_INFINITY;
  let inRow = 0;
  let closed = false;

  /** @returns the row of a statement on a new connection; `null` if the server does not answer */
  async function ask<Row>(statement: string, ...values: number[]): Promise<Row | null> {
    try {
      const fresh = open(1);
      const answer: Promise<Row[]> = fresh.unsafe(statement, values);
      const timeout = Bun.sleep(checkTimeoutMs).then(() => []);
      const [row] = await Promise.race([answer, timeout]).finally(() => {
        fresh.close({ timeout: 0 }).catch(() => {});
      });
      return row ?? null;
    } catch {
      return null;
    }
  }

  /** @param endS how long the pending statements may go on, in seconds. Then they reject on their own */
  function replace(endS: number): void {
    const old = sql;
    sql = open();
    replacedMs = nowMs();
    old.close({ timeout: endS }).catch(() => {});
  }

  async function check(): Promise<void> {
    checking = true;
    while (overdue > 0 && !closed) {
      const mayReplace = nowMs() - replacedMs >= replaceIntervalMs;
      const found = mayReplace ? await ask<{ running: boolean }>(isRunning, runningMs) : null;
      // The overdue statements are lost. It may have been closed meanwhile: the new connections would stay open.
      if (found?.running === false && !closed) replace(0);
      await Bun.sleep(checkIntervalMs);
    }
    checking = false;
  }

  return {
    sql: () => sql,
    checkUntil(work: Promise<unknown>): void {
      overdue += 1;
      const end = () => {
        overdue -= 1;
      };
      work.then(end, end);
      if (!checking) void check();
    },
    /** Replaces the connections if new ones lead to a server that takes writes. Call it when a write is rejected. */
    async leaveReadOnly(): Promise<void> {
      const askedMs = nowMs();
      const longerMs = writableIntervalMs * 2 ** Math.max(0, inRow - MAX_IN_ROW);
      const intervalMs = Math.min(longerMs, MAX_WRITABLE_INTERVAL_MS);
      if (askedMs - writableMs < intervalMs) return;
      writableMs = Number.POSITIVE_INFINITY;
      const found = await ask<{ writable: boolean }>(isWritable);
      writableMs = nowMs();
      if (found?.writable !== true || closed) return;
      inRow = askedMs - replacedMs < 2 * intervalMs ? inRow + 1 : 0;
      replace(END_S);
    },
    /** Waits for no statements: a server that hangs would not end them. */
    close(): Promise<void> {
      closed = true;
      return sql.close({ timeout: 0 });
    },
  };
}
