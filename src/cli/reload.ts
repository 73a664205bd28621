/** Reloads the certificate, at each SIGHUP and when its files change. */
import { messageOf } from "../base/error.ts";
import type { Log } from "../base/log.ts";

/** Interval at which the files are read. */
const INTERVAL_MS = 2_000;

interface Certificate {
  /** @param isForced whether files that have not changed are loaded as well. @returns whether they were loaded */
  reloadTls(isForced: boolean): Promise<boolean>;
}

type ReloadLog = Pick<Log, "info" | "error">;

export function reloadAtHangup(certificate: Certificate, log: ReloadLog): void {
  certificate.reloadTls(true).then(
    (hasTls) => log.info(hasTls ? "certificate reloaded" : "nothing to reload"),
    (error) => log.error("certificate not reloaded", { reason: messageOf(error) }),
  );
}

/** Reads the files again and again, since nothing reports that the target of a link is another one. */
export function startReloading(
  certificate: Certificate,
  log: ReloadLog,
  intervalMs: number = INTERVAL_MS,
): Disposable {
  /** What was logged last, since files that cannot be used may stay for long. */
  let problem: string | null = null;
  async function reload(): Promise<void> {
    try {
      if (await certificate.reloadTls(false)) log.info("certificate reloaded");
      problem = null;
    } catch (error) {
      const reason = messageOf(error);
      if (reason !== problem) log.error("certificate not reloaded", { reason });
      problem = reason;
    }
  }
  const timer = setInterval(reload, intervalMs);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
