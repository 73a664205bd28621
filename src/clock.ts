/** The time as text: RFC 3339, in UTC, with milliseconds. */
export type Clock = () => string;

/** Many requests share a millisecond: its text is made once. */
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
