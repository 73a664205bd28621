/**
 * The connections to the server. They are replaced if the network has lost them, because statements on them would fail
 * only when the system gives them up, after a quarter of an hour. They are kept while the server runs their statements,
 * e.g. commits that wait for a standby: it would not notice that they are closed, and keep the old ones as well.
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

/** Whether the server runs no statement of this process for long. Servers behind a pooler share their name. */
const runsNone = `
  select pg_catalog.count(*) = 0 as answer
  from pg_catalog.pg_stat_activity
  where datname = pg_catalog.current_database()
    and application_name = pg_catalog.current_setting('application_name')
    and pid <> pg_catalog.pg_backend_pid()
    and state = 'active'
    and query_start < pg_catalog.clock_timestamp() - $1::float8 * interval '1 millisecond'
`;

const isWritable = `
  select pg_catalog.current_setting('transaction_read_only') = 'off' as answer
`;

/** How long old connections may finish statements, and new ones stay at least: the endpoint may switch again. */
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
  let askMs = Number.NEGATIVE_INFINITY;
  let closed = false;

  /** @returns the answer of a statement on a new connection; false if the server does not answer */
  async function ask(statement: string, ...values: number[]): Promise<boolean> {
    try {
      const fresh = open(1);
      const answer: Promise<{ answer: boolean }[]> = fresh.unsafe(statement, values);
      const timeout = Bun.sleep(checkTimeoutMs).then(() => []);
      const [row] = await Promise.race([answer, timeout]).finally(() => {
        fresh.close({ timeout: 0 }).catch(() => {});
      });
      return row?.answer ?? false;
    } catch {
      return false;
    }
  }

  /** @param endS how long the pending statements may go on, in seconds. Then they reject on their own */
  function replace(endS: number): void {
    // It may have been closed during the check: new connections would stay open.
    if (closed) return;
    const old = sql;
    sql = open();
    replacedMs = nowMs();
    old.close({ timeout: endS }).catch(() => {});
  }

  async function check(): Promise<void> {
    checking = true;
    while (overdue > 0 && !closed) {
      const mayReplace = nowMs() - replacedMs >= replaceIntervalMs;
      // Then the overdue statements are lost.
      if (mayReplace && (await ask(runsNone, runningMs))) replace(0);
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
      if (nowMs() < askMs) return;
      askMs = Number.POSITIVE_INFINITY;
      const isFound = await ask(isWritable);
      askMs = nowMs() + (isFound ? END_S * 1_000 : writableIntervalMs);
      if (isFound) replace(END_S);
    },
    /** Waits for no statements: a server that hangs would not end them. */
    close(): Promise<void> {
      closed = true;
      return sql.close({ timeout: 0 });
    },
  };
}
