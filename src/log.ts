/** One line per event: JSON for programs, words for people. */
import { createClock } from "./clock.ts";

export const log_levels = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof log_levels)[number];
type Severity = Exclude<LogLevel, "silent">;

export const log_formats = ["json", "text"] as const;
export type LogFormat = (typeof log_formats)[number];

export type Fields = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Log extends Readonly<Record<Severity, (event: string, fields?: Fields) => void>> {
  /** Whether lines of this level are written: ask before making costly fields. */
  enabled(level: Severity): boolean;
}

/** @param time in UTC, RFC 3339 with milliseconds */
type Formatter = (time: string, level: Severity, event: string, fields?: Fields) => string;

const formatters: Record<LogFormat, Formatter> = {
  // Not one object with the fields spread into it: that takes 4 % of the throughput.
  json(time, level, event, fields) {
    const head = `{"time":"${time}","level":"${level}","event":${JSON.stringify(event)}`;
    const rest = fields === undefined ? "{}" : JSON.stringify(fields);
    return rest === "{}" ? `${head}}` : `${head},${rest.slice(1)}`;
  },
  // Values as JSON where they have spaces or line feeds, so that an event stays one line.
  text(time, level, event, fields = {}) {
    const pairs = Object.entries(fields)
      .filter(([, value]) => value !== undefined)
      .map(
        ([name, value]) =>
          `${name}=${/^[\w./:-]+$/.test(`${value}`) ? value : JSON.stringify(value)}`,
      );
    return [time.slice(11, 23), level.toUpperCase().padEnd(5), event, ...pairs].join(" ");
  },
};

export interface LogOptions {
  readonly level: LogLevel;
  readonly format: LogFormat;
  readonly now: () => Date;
  /** Takes one line, with its line feed. */
  readonly write: (line: string) => void;
}

export function createLog({ level, format, now, write }: LogOptions): Log {
  const threshold = log_levels.indexOf(level);
  const enabled = (severity: Severity) => log_levels.indexOf(severity) >= threshold;
  const formatLine = formatters[format];
  const clock = createClock(now);
  const logAt = (severity: Severity) => (event: string, fields?: Fields) => {
    if (enabled(severity)) write(`${formatLine(clock(), severity, event, fields)}\n`);
  };
  return {
    enabled,
    debug: logAt("debug"),
    info: logAt("info"),
    warn: logAt("warn"),
    error: logAt("error"),
  };
}
