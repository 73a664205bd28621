export function latestOf(left: string, right: string): string {
  return left > right ? left : right;
}

/** @returns a function that returns the current time: RFC 3339 in UTC with milliseconds */
export function createTimestamp(now: () => Date): () => string {
  // Formats each millisecond once, because many requests share it.
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
