/** One JSON line per event. */

export const log_levels = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof log_levels)[number];
type Severity = Exclude<LogLevel, "silent">;

export type Fields = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Log extends Readonly<Record<Severity, (event: string, fields?: Fields) => void>> {
  /** Whether lines of this level are written: ask before making costly fields. */
  enabled(level: Severity): boolean;
}

/** @param write takes one line, with its line feed */
export function createLog(level: LogLevel, now: () => Date, write: (line: string) => void): Log {
  const threshold = log_levels.indexOf(level);
  const enabled = (severity: Severity) => log_levels.indexOf(severity) >= threshold;
  const at = (severity: Severity) => (event: string, fields?: Fields) => {
    if (!enabled(severity)) return;
    write(`${JSON.stringify({ time: now().toISOString(), level: severity, event, ...fields })}\n`);
  };
  return { enabled, debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}
