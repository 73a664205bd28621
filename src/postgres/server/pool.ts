/**
 * The connections to the server. They are replaced if the network has lost them, because statements on them would fail
 * only when the system gives them up, after a quarter of an hour. They are kept while the server runs their statements,
 * e.g. commits that wait for a standby: it would not notice that they are closed, and keep the old ones beside the new.
 */
import type { SQL } from "bun";

const timing = {
  /** How often the server is asked about work that does not end. */
  checkIntervalMs: 10_000,
  /** How long the server may take to answer that. */
  checkTimeoutMs: 5_000,
  replaceIntervalMs: 60_000,
  /** A statement that has run for less is not one of those that hang: another process may have just begun it. */
  runningMs: 1_000,
};

/** Whether the server runs a statement of this process for long. Servers behind a pooler share their name. */
const isRunning = `
  select count(*) > 0 as running
  from pg_stat_activity
  where datname = current_database()
    and application_name = current_setting('application_name')
    and pid <> pg_backend_pid()
    and state = 'active'
    and query_start < clock_timestamp() - $1::integer * interval '1 millisecond'
`;

/** @param open opens connections; `max` is their number, by default that of the URL */
export function createPool(
  open: (max?: number) => SQL,
  { checkIntervalMs, checkTimeoutMs, replaceIntervalMs, runningMs } = timing,
) {
  let sql = open();
  let replacedMs = Number.NEGATIVE_INFINITY;
  let overdue = 0;
  let checking = false;
  let closed = false;

  /**
   * @returns whether the overdue statements are lost: the server answers on a new connection, and runs none of them
   */
  async function isLost(): Promise<boolean> {
    try {
      const fresh = open(1);
      const answer: Promise<{ readonly running: boolean }[]> = fresh.unsafe(isRunning, [runningMs]);
      const timeout = Bun.sleep(checkTimeoutMs).then(() => []);
      const [row] = await Promise.race([answer, timeout]).finally(() => {
        fresh.close({ timeout: 0 }).catch(() => {});
      });
      return row?.running === false;
    } catch {
      return false;
    }
  }

  function replace(): void {
    const lost = sql;
    sql = open();
    replacedMs = performance.now();
    // The pending statements reject on their own. No caller waits for the old connections to close.
    lost.close({ timeout: 0 }).catch(() => {});
  }

  async function check(): Promise<void> {
    checking = true;
    while (overdue > 0 && !closed) {
      const mayReplace = performance.now() - replacedMs >= replaceIntervalMs;
      // It may have been closed meanwhile, and nobody would close the new connections.
      if (mayReplace && (await isLost()) && !closed) replace();
      await Bun.sleep(checkIntervalMs);
    }
    checking = false;
  }

  return {
    sql: () => sql,
    /** Checks the connections until work that has timed out ends. */
    checkUntil(work: Promise<unknown>): void {
      overdue += 1;
      const end = () => {
        overdue -= 1;
      };
      work.then(end, end);
      if (!checking) void check();
    },
    /** Waits for no statements: a server that hangs would not end them. */
    close(): Promise<void> {
      closed = true;
      return sql.close({ timeout: 0 });
    },
  };
}
