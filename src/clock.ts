/** Returns the current time: RFC 3339 in UTC with milliseconds. */
export type Clock = () => string;

/** @returns the later of two times in this format */
export function latestOf(left: string, right: string): string {
  return left > right ? left : right;
}

/** Formats each millisecond once, because many requests share it. */
export function createClock(now: () => Date): Clock {
  let last_ms = Number.NaN;
  let text = "";
  return () => {
    const time = now();
    if (time.getTime() !== last_ms) {
      last_ms = time.getTime();
      text = time.toISOString();
    }
    return text;
  };
}
