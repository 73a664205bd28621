/** Log lines that clients could otherwise cause without limit: the first of each kind, then one per interval. */

/** Minimum time between two lines of one kind. */
const INTERVAL_MS = 1_000;

/** @param omitted the number of events before this one that are not logged, if there are any */
type Write<Event> = (event: Event, omitted: number | undefined) => void;

/** @returns call it with each event, and its kind, of which there must be few */
export function createThrottledLog<Event>(write: Write<Event>, intervalMs = INTERVAL_MS) {
  /** By kind, the events of the interval that have not been logged, of which only the last one is kept. */
  const pending = new Map<string, { last: Event; count: number } | null>();

  function startInterval(kind: string): void {
    pending.set(kind, null);
    setTimeout(() => logPending(kind), intervalMs).unref();
  }

  function logPending(kind: string): void {
    const events = pending.get(kind);
    pending.delete(kind);
    if (!events) return;
    write(events.last, events.count - 1 || undefined);
    startInterval(kind);
  }

  return (event: Event, kind = ""): void => {
    if (!pending.has(kind)) {
      write(event, undefined);
      startInterval(kind);
      return;
    }
    pending.set(kind, { last: event, count: (pending.get(kind)?.count ?? 0) + 1 });
  };
}
