/** Returns the current time: RFC 3339 in UTC with milliseconds. */
export type Clock = () => string;

export function latestOf(left: string, right: string): string {
  return left > right ? left : right;
}

/** Formats each millisecond once, because many requests share it. */
export function createClock(now: () => Date): Clock {
  let lastMs = Number.NaN;
  let text = "";
  return () => {
    const time = now();
    if (time.getTime() !== lastMs) {
      lastMs = time.getTime();
      text = time.toISOString();
    }
    return text;
  };
}
