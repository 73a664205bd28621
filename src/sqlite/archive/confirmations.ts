/** Knows which commits the archive has, and up to when it has all of them. */
export interface Confirmations {
  /** Counts a commit, which has ended. */
  committed(commit: number): void;
  /** Whether there is a commit that may be behind the last segment that was read. */
  isUnread(): boolean;
  /** Everything that was committed until this time, and that was counted, is in the segments up to this one. */
  read(segment: number, timeMs: number): void;
  /** The storage has the segments up to this one. */
  stored(segment: number): void;
  /**
   * What is stored can be restored.
   * @returns the last commit of it; `null` if that has been returned before
   */
  take(): number | null;
  /** The archive has all commits up to this time. */
  untilMs(): number;
  /** Forgets what was read: another generation begins. */
  reset(): void;
}

interface Read {
  readonly commit: number;
  readonly segment: number;
  readonly timeMs: number;
}

/** @param startMs until when nothing was committed */
export function trackConfirmations(startMs: number): Confirmations {
  let last = 0;
  let lastRead = 0;
  let confirmed = 0;
  let untilMs = startMs;
  /** One for each segment that is not stored. */
  let waiting: Read[] = [];
  /** The last one that is stored, and was not taken. */
  let ready: Read | null = null;
  return {
    committed(commit) {
      last = commit;
    },
    isUnread: () => lastRead < last,
    read(segment, timeMs) {
      lastRead = last;
      if (waiting.at(-1)?.segment === segment) waiting.pop();
      waiting.push({ commit: last, segment, timeMs });
    },
    stored(segment) {
      while (waiting[0] !== undefined && waiting[0].segment <= segment)
        ready = waiting.shift() ?? null;
    },
    take() {
      if (ready === null) return null;
      const { commit, timeMs } = ready;
      ready = null;
      untilMs = timeMs;
      if (commit <= confirmed) return null;
      confirmed = commit;
      return commit;
    },
    untilMs: () => untilMs,
    reset() {
      waiting = [];
      ready = null;
      lastRead = 0;
    },
  };
}
