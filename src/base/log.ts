/** One line per event: JSON for programs, text for a terminal. */
import { createTimestamp } from "./clock.ts";

export const logLevels = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];
type Severity = Exclude<LogLevel, "silent">;

export const logFormats = ["json", "text"] as const;
export type LogFormat = (typeof logFormats)[number];

type Fields = Readonly<Record<string, string | number | boolean | null | undefined>>;

type RequestFields = Fields & {
  readonly method: string;
  /** The pattern of the path, e.g. `/api/v1/users/:id`, or {@link UNKNOWN_ROUTE}. */
  readonly route: string;
  readonly status: number;
  readonly duration_ms: number;
};

export interface Log extends Readonly<Record<Severity, (event: string, fields?: Fields) => void>> {
  /** Whether lines of this level are written. Check it before computing expensive fields. */
  enabled(level: Severity): boolean;
  /** Call it if level `info` is enabled. @param url only its path is logged, because a query can hold secrets */
  request(fields: RequestFields, url: string): void;
}

/** Of requests that match no route. Their path is logged, to show a typo. */
export const UNKNOWN_ROUTE = "/*";

const MAX_PATH_CHARACTERS = 100;

function displayPath(url: string): string {
  const path = /^[^:]*:\/\/[^/?#]*([^?#]*)/.exec(url)?.[1] || "/";
  const isLong = path.length > MAX_PATH_CHARACTERS;
  const shown = isLong ? `${path.slice(0, MAX_PATH_CHARACTERS)}...` : path;
  return shown.replace(/[^\x21-\x7e]/g, "?");
}

// Cheaper than a single object with the fields spread into it.
function formatJson(time: string, level: Severity, event: string, fields: Fields = {}): string {
  const head = `{"time":"${time}","level":"${level}","event":${JSON.stringify(event)}`;
  const rest = JSON.stringify(fields);
  return rest === "{}" ? `${head}}` : `${head},${rest.slice(1)}`;
}

const jsonFormatter = {
  event: formatJson,
  request(time: string, fields: RequestFields, url: string): string {
    const isUnknown = fields.route === UNKNOWN_ROUTE;
    const all = isUnknown ? { ...fields, path: displayPath(url) } : fields;
    return formatJson(time, "info", "request", all);
  },
};

const timeOfDay = (time: string) => time.slice(11, 19);

const textFormatter: typeof jsonFormatter = {
  // Values with spaces or line feeds are JSON, so that an event is one line.
  event(time, level, event, fields = {}) {
    const pairs = Object.entries(fields)
      .filter(([, value]) => value !== undefined)
      .map(
        ([name, value]) =>
          `${name}=${/^[\w./:-]+$/.test(`${value}`) ? value : JSON.stringify(value)}`,
      );
    return [timeOfDay(time), level.toUpperCase().padEnd(5), event, ...pairs].join(" ");
  },
  request(time, { method, status, duration_ms, ...fields }, url) {
    const { request_id, reason, client } = fields;
    const details = status >= 400 ? [request_id, reason, client].filter(Boolean) : [];
    const duration = `${duration_ms.toFixed(1)} ms`;
    return [timeOfDay(time), method, displayPath(url), status, duration, ...details].join(" ");
  },
};

/** @param write receives one line, including its line feed */
export function createLog(
  level: LogLevel,
  format: LogFormat,
  now: () => Date,
  write: (line: string) => void,
): Log {
  const threshold = logLevels.indexOf(level);
  const enabled = (severity: Severity) => logLevels.indexOf(severity) >= threshold;
  const formatter = format === "json" ? jsonFormatter : textFormatter;
  const timestamp = createTimestamp(now);
  const logAt = (severity: Severity) => (event: string, fields?: Fields) => {
    if (enabled(severity)) write(`${formatter.event(timestamp(), severity, event, fields)}\n`);
  };
  return {
    enabled,
    debug: logAt("debug"),
    info: logAt("info"),
    warn: logAt("warn"),
    error: logAt("error"),
    request: (fields, url) => write(`${formatter.request(timestamp(), fields, url)}\n`),
  };
}
