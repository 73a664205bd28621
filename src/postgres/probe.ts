import type { Database } from "./connection.ts";

/** How long it counts that the database could be written, and that it could not. */
const GOOD_MS = 5_000;
const BAD_MS = 1_000;

const write = `
  update user_api
  set probed_at = $1
`;

/**
 * Whether the database can be written, by writing: a standby, or a disk that is full, tells nobody before.
 * Whoever asks, and however often, it writes once in a while only.
 * @returns a function that throws {AppError} unavailable
 */
export function createProbe(db: Database, now: () => Date): () => Promise<void> {
  let last = Promise.resolve();
  let valid_until_ms = Number.NEGATIVE_INFINITY;

  async function probe(): Promise<void> {
    valid_until_ms = Number.POSITIVE_INFINITY;
    let lasts_ms = BAD_MS;
    try {
      await db.change((session) => session.all(write, now().toISOString()));
      lasts_ms = GOOD_MS;
    } finally {
      valid_until_ms = performance.now() + lasts_ms;
    }
  }

  return () => {
    // Busy is not broken: what was known counts on.
    if (performance.now() >= valid_until_ms && !db.gate.isFull()) {
      last = probe();
      // Told to those who ask; nobody may have.
      last.catch(() => {});
    }
    return last;
  };
}
