/** Opens a database with an archive, again and again: what has failed because of another server or the storage may work. */
import type { Clock } from "../../../base/clock.ts";
import { AppError, messageOf } from "../../../base/error.ts";
import type { ArchiveOptions } from "../../../domain/archive.ts";
import { COPY_BROKEN, causeOf, DIVERGED, isExpected, UNUSABLE } from "../context.ts";
import { awaited } from "../problems.ts";
import { RESTORE } from "../write/generation.ts";

const PAUSE_MS = 1_000;
const LOG_INTERVAL_MS = 60_000;

/**
 * @param replace puts the database, whose history is another one for this reason, out of the way. No process has it open
 * @throws what stops a start: for a server with --standby, only what comes before it has reached the storage, the archive
 * of another database, bugs, and the reason of the signal
 */
export async function untilOpen<Opened>(
  options: ArchiveOptions,
  clock: Clock,
  open: (attempt: ArchiveOptions) => Promise<Opened>,
  replace: (reason: string) => void,
): Promise<Opened> {
  const { standby, restore, signal, onLog, onSuperseded, onWaiting = () => {} } = options;
  let loggedMs = Number.NEGATIVE_INFINITY;
  let wasReached = options.wasSuperseded;
  /** Why the database has to be replaced; `null` if it has not. */
  let diverged: string | null = null;
  for (;;) {
    const opening = Promise.withResolvers<void>();
    const attempt: ArchiveOptions = {
      ...options,
      wasReached,
      // Otherwise the opening fails, and the next one follows the other server.
      onSuperseded: (error) => void opening.promise.then(() => onSuperseded(error)),
    };
    try {
      if (diverged !== null) replace(diverged);
      diverged = null;
      const opened = await open(attempt);
      opening.resolve();
      onWaiting(null);
      return opened;
    } catch (error) {
      if (!isExpected(error) || signal.aborted) throw error;
      const cause = causeOf(error);
      wasReached ||= cause !== null && cause !== UNUSABLE;
      if (cause === DIVERGED && !standby && restore !== "if-missing")
        throw new AppError("operator", `${messageOf(error)}: ${RESTORE}`, { cause });
      if (cause === DIVERGED) diverged = messageOf(error);
      else if (cause === COPY_BROKEN)
        onLog("warn", "copy will be restored", { reason: messageOf(error) });
      else if (!standby || !wasReached) throw error;
      else {
        const what = awaited(error);
        onWaiting(what);
        if (clock.monotonicMs() - loggedMs >= LOG_INTERVAL_MS) {
          loggedMs = clock.monotonicMs();
          onLog("warn", "waiting", { for: what, reason: messageOf(error) });
        }
        await clock.sleep(PAUSE_MS, signal);
      }
    }
  }
}
