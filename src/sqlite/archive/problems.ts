/** What fails in an archive, by activity: that one works does not mean that another does. */
import type { Clock } from "../../base/clock.ts";
import { AppError, fail, messageOf } from "../../base/error.ts";
import type { ArchiveLog, ArchiveOptions } from "../../domain/archive.ts";

/** The first line is logged when an activity fails, the second when it works again, unless that has another line. */
const LINES = {
  opening: ["archive not opened", null],
  reading: ["database not read for the archive", "database read again for the archive"],
  segments: ["archive not written", "archive written again"],
  base: ["archive base not written", null],
  heartbeat: ["archive heartbeat not written", "archive heartbeat written again"],
  following: ["archive not followed", "archive followed again"],
  handover: ["disk fails, and no standby takes over", null],
  deletion: ["expired archive objects not deleted", "expired archive objects deleted again"],
} as const;

export type Activity = keyof typeof LINES;

/** Without these, the archive is not up to date, or will not be for long. The most important one is the first. */
const REQUIRED_ACTIVITIES: readonly Activity[] = ["opening", "reading", "segments", "base"];

/** Interval of the log lines about an activity that fails, also if it works in between: it may fail every other time. */
const LOG_INTERVAL_MS = 60_000;
const [MIN_RETRY_MS, MAX_RETRY_MS] = [200, 5_000];

/** @returns what a server waits for that meets this error, for its clients as well: what its message says after a colon is for the log only */
export function awaited(error: unknown): string {
  if (!(error instanceof AppError)) return "its disk";
  const [, what] = /^waiting for ([^:]+)/.exec(error.message) ?? [];
  if (what !== undefined) return what;
  if (error.code === "unavailable") return "the storage of the archive";
  return "an operator: its log has the reason, and `user-api archive check` looks at the archive";
}

export function createProblems(
  log: ArchiveLog,
  clock: Pick<Clock, "monotonicMs" | "sleep">,
  onWaiting: ArchiveOptions["onWaiting"] = () => {},
) {
  const failing = new Map<Activity, { readonly reason: string; readonly what: string }>();
  const logged = new Set<Activity>();
  const loggedMs = new Map<Activity, number>();
  const running = new Map<Activity, Promise<void>>();
  const firstFailure = Promise.withResolvers<void>();

  function report(activity: Activity, error: unknown): void {
    const [reason, what] = [messageOf(error), awaited(error)];
    const nowMs = clock.monotonicMs();
    failing.set(activity, { reason, what });
    onWaiting(what);
    firstFailure.resolve();
    if (nowMs - (loggedMs.get(activity) ?? Number.NEGATIVE_INFINITY) < LOG_INTERVAL_MS) return;
    loggedMs.set(activity, nowMs);
    logged.add(activity);
    log("warn", LINES[activity][0], { reason });
  }

  function clear(activity: Activity): void {
    // Another activity may still fail.
    if (failing.delete(activity)) onWaiting([...failing.values()].at(-1)?.what ?? null);
    const line = LINES[activity][1];
    if (logged.delete(activity) && line !== null) log("info", line);
  }

  return {
    report,
    clear,
    isFailing: (activity: Activity) => failing.has(activity),
    /** All that is required works: another generation has begun. */
    clearRequired: () => REQUIRED_ACTIVITIES.forEach(clear),
    current(): string | null {
      const problems = REQUIRED_ACTIVITIES.map((required) => failing.get(required));
      return problems.find((problem) => problem !== undefined)?.reason ?? null;
    },
    firstFailure: firstFailure.promise,
    /** Reports what becomes of the work. If that of this activity runs already, it is not begun again. */
    run(activity: Activity, isOver: () => boolean, work: () => Promise<void>): Promise<void> {
      const earlier = running.get(activity);
      if (earlier !== undefined) return earlier;
      const done = work();
      running.set(activity, done);
      const onError = (error: unknown) => {
        if (!isOver()) report(activity, error);
      };
      done.then(() => clear(activity), onError).finally(() => running.delete(activity));
      return done;
    },
    /** Repeats an attempt until it succeeds. @throws {AppError} unavailable if it is over */
    async retry<Result>(
      activity: Activity,
      isOver: () => boolean,
      attempt: () => Promise<Result>,
    ): Promise<Result> {
      for (let failures = 0; !isOver(); failures += 1) {
        try {
          const result = await attempt();
          clear(activity);
          return result;
        } catch (error) {
          if (!(error instanceof AppError)) throw error;
          report(activity, error);
        }
        await clock.sleep(Math.min(MIN_RETRY_MS * 2 ** failures, MAX_RETRY_MS));
      }
      return fail("unavailable", "the archive was closed");
    },
  };
}
