import type { Log } from "./log.ts";

const DAY_MS = 86_400_000;
/** Time to renew it by hand. */
const WARNING_MS = 21 * DAY_MS;

/** In ms since the Unix epoch. */
export interface Validity {
  readonly startMs: number;
  readonly endMs: number;
}

/** @returns whether to renew it: in its last 21 days, or its last quarter, because a short one is renewed later */
export function endsSoon({ startMs, endMs }: Validity, nowMs: number): boolean {
  return endMs - nowMs <= Math.min(WARNING_MS, (endMs - startMs) / 4);
}

export type ExpiryLog = ReturnType<typeof createExpiryLog>;

export function createExpiryLog(kind: string, now: () => Date, log: Pick<Log, "warn" | "error">) {
  const uses = new Map<string, Validity & { readonly usedMs: number; readonly warning: string }>();
  return {
    note(name: string, validity: Validity): void {
      const usedMs = now().getTime();
      if (!endsSoon(validity, usedMs)) return;
      const isOver = usedMs >= validity.endMs;
      const line = { [kind]: name, expires_at: new Date(validity.endMs).toISOString() };
      const warning = `${Math.floor(usedMs / DAY_MS)} ${isOver} ${line.expires_at}`;
      const isNew = uses.get(name)?.warning !== warning;
      uses.set(name, { ...validity, usedMs, warning });
      if (isNew && isOver) log.error(`${kind} expired`, line);
      else if (isNew) log.warn(`${kind} expires soon`, line);
    },
    /** @returns the validity that ends first, of what ends soon and was used within a day; `null` if there is none */
    first(): Validity | null {
      const sinceMs = now().getTime() - DAY_MS;
      for (const [name, { usedMs }] of uses) if (usedMs < sinceMs) uses.delete(name);
      return [...uses.values()].sort((one, other) => one.endMs - other.endMs)[0] ?? null;
    },
  };
}
