/** Knows which commits the archive has when it has a segment of the current generation. */
export interface Commits {
  /** Counts a commit, which has ended. */
  committed(commit: number): void;
  /** Whether there is a commit that may be behind the last segment that was read. */
  isUnread(): boolean;
  /** Everything that was committed until now is in the segments up to this one. */
  read(segment: number): void;
  /** @returns the last commit in the segments up to this one; `null` if it has been returned before */
  takeStored(segment: number): number | null;
  /** Forgets what was read: another generation begins. */
  reset(): void;
}

export function trackCommits(): Commits {
  let last = 0;
  /** The last commit that was read, also if it was taken since. */
  let lastRead = 0;
  let waiting: { readonly commit: number; readonly segment: number }[] = [];
  return {
    committed(commit) {
      last = commit;
    },
    isUnread: () => lastRead < last,
    read(segment) {
      lastRead = last;
      waiting.push({ commit: last, segment });
    },
    takeStored(segment) {
      let commit: number | null = null;
      while (waiting[0] !== undefined && waiting[0].segment <= segment) {
        commit = waiting.shift()?.commit ?? null;
      }
      return commit;
    },
    reset() {
      waiting = [];
      lastRead = 0;
    },
  };
}
