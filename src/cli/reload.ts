import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/error.ts";
import type { Log } from "../base/log.ts";

export function startReloading(
  reloadTls: () => Promise<boolean>,
  onHangup: (listener: () => void) => void,
  log: Pick<Log, "info" | "error">,
  intervalMs = 2_000,
): Disposable {
  /** What was logged last, since files that cannot be used may stay for long. */
  let problem = "";
  async function reload(isAsked: boolean): Promise<void> {
    try {
      // After a problem, the files can be those that are in use.
      const hasChanged = (await reloadTls()) || problem !== "";
      if (hasChanged || isAsked)
        log.info(hasChanged ? "certificate reloaded" : "nothing to reload");
      problem = "";
    } catch (error) {
      const reason = messageOf(error);
      if (isAsked || reason !== problem) log.error("certificate not reloaded", { reason });
      problem = reason;
    }
  }
  onHangup(() => void reload(true));
  return systemClock.every(intervalMs, () => void reload(false));
}
