/** Whether a database can be written, by writing: a disk that is full or fails tells nobody before. */

/** How long it counts that the database could be written, and that it could not. */
const SUCCESS_TTL_MS = 5_000;
const FAILURE_TTL_MS = 1_000;

export interface WriteProbeOptions {
  /** Writes, and changes nothing. */
  readonly write: () => Promise<unknown>;
  /** Whether so many writes wait that one more would be refused: busy is not broken. */
  readonly isFull: () => boolean;
}

/**
 * Whoever asks, and however often, it writes once in a while only.
 * @returns a function that throws {AppError} unavailable
 */
export function createWriteProbe({ write, isFull }: WriteProbeOptions): () => Promise<void> {
  let last_result = Promise.resolve();
  let valid_until_ms = Number.NEGATIVE_INFINITY;

  async function probe(): Promise<void> {
    valid_until_ms = Number.POSITIVE_INFINITY;
    let ttl_ms = FAILURE_TTL_MS;
    try {
      await write();
      ttl_ms = SUCCESS_TTL_MS;
    } finally {
      valid_until_ms = performance.now() + ttl_ms;
    }
  }

  return () => {
    // What was known counts on while it is full.
    if (performance.now() >= valid_until_ms && !isFull()) {
      last_result = probe();
      // Told to those who ask; nobody may have.
      last_result.catch(() => {});
    }
    return last_result;
  };
}
