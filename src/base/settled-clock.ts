/** How long a clock must go on without a step forward until it is believed. */
const SETTLING_MS = 60 * 60 * 1000;
/** Corrections between two looks are smaller. */
const STEP_MS = 10_000;

/** For what expires. @returns a function, to be called each minute: the time in ms, 0 in the first hour; steps forward count after one */
export function createSettledClock(nowMs: () => number, monotonicMs: () => number) {
  let [seenMs, believedMs, steppedMs] = [Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY, 0];
  return (): number => {
    const lookedMs = monotonicMs();
    const aheadMs = nowMs() - lookedMs;
    if (aheadMs > seenMs + STEP_MS) steppedMs = lookedMs;
    seenMs = aheadMs;
    if (lookedMs - steppedMs >= SETTLING_MS) believedMs = aheadMs;
    return Math.max(0, lookedMs + Math.min(aheadMs, believedMs));
  };
}
