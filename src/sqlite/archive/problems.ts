/** What fails in an archive, by activity: that one works does not mean that another does. */
import type { ArchiveLog } from "../../archive.ts";
import { messageOf } from "../../error.ts";

/** The first line is logged when an activity fails, the second when it works again, unless that has a line of its own. */
const LINES = {
  opening: ["archive not opened", null],
  segments: ["archive not written", "archive written again"],
  base: ["archive base not written", null],
  lease: ["archive lease not written", "archive lease written again"],
  deletion: ["expired archive objects not deleted", "expired archive objects deleted again"],
} as const;

export type Activity = keyof typeof LINES;

/** Without these, the archive is not up to date, or will not be for long. The most important one is the first. */
export const REQUIRED_ACTIVITIES: readonly Activity[] = ["opening", "segments", "base", "lease"];

/** Interval of the log lines about an activity that fails. */
const LOG_INTERVAL_MS = 60_000;

export interface Problems {
  report(activity: Activity, error: unknown): void;
  /** The activity works, or is over. */
  clear(activity: Activity): void;
  /** @returns why a required activity fails; `null` if none does */
  current(): string | null;
}

export function createProblems(log: ArchiveLog): Problems {
  const reasons = new Map<Activity, string>();
  /** Activities whose failure was logged, and is not over. */
  const logged = new Set<Activity>();
  const loggedMs = new Map<Activity, number>();
  return {
    report(activity, error) {
      const reason = messageOf(error);
      reasons.set(activity, reason);
      const nowMs = performance.now();
      // Also after it has worked again, because it may fail every other time.
      if (nowMs - (loggedMs.get(activity) ?? Number.NEGATIVE_INFINITY) < LOG_INTERVAL_MS) return;
      loggedMs.set(activity, nowMs);
      logged.add(activity);
      log("warn", LINES[activity][0], { reason });
    },
    clear(activity) {
      reasons.delete(activity);
      const line = LINES[activity][1];
      if (logged.delete(activity) && line !== null) log("info", line);
    },
    current() {
      const failing = REQUIRED_ACTIVITIES.find((activity) => reasons.has(activity));
      return failing === undefined ? null : (reasons.get(failing) ?? null);
    },
  };
}
