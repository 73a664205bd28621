import { expect, test } from "bun:test";
import { createLog, type LogFormat, type LogLevel, log_levels } from "../src/log.ts";

const now = () => new Date("2026-11-20T18:57:03.120Z");

function makeLog(level: LogLevel, format: LogFormat = "json") {
  const lines: string[] = [];
  return { log: createLog({ level, format, now, write: (line) => lines.push(line) }), lines };
}

test("`log` writes one JSON line when an event has fields", () => {
  const { log, lines } = makeLog("info");
  log.info("request", { status: 200, path: "/a\nb", ok: true, token: null, absent: undefined });
  expect(lines).toEqual([
    '{"time":"2026-11-20T18:57:03.120Z","level":"info","event":"request",' +
      '"status":200,"path":"/a\\nb","ok":true,"token":null}\n',
  ]);
});

test("`log` writes the level and the event alone when there are no fields", () => {
  const { log, lines } = makeLog("debug");
  log.warn("sweep failed");
  expect(lines).toEqual([
    '{"time":"2026-11-20T18:57:03.120Z","level":"warn","event":"sweep failed"}\n',
  ]);
});

test("`log` writes the time of each event when the clock moves", () => {
  let time_ms = Date.parse("2026-11-20T18:57:03.120Z");
  const lines: string[] = [];
  const options = { level: "info", format: "json", now: () => new Date(time_ms) } as const;
  const log = createLog({ ...options, write: (line) => lines.push(line) });
  for (const pause_ms of [0, 0, 1, 0, 60_000]) {
    time_ms += pause_ms;
    log.info("tick");
  }
  expect(lines.map((line) => JSON.parse(line).time.slice(14))).toEqual([
    "57:03.120Z",
    "57:03.120Z",
    "57:03.121Z",
    "57:03.121Z",
    "58:03.121Z",
  ]);
});

test("`log` writes words on one line when the format is text", () => {
  const { log, lines } = makeLog("info", "text");
  log.info("request", {
    status: 200,
    route: "/users/:id",
    token: "two words\n",
    reason: "two words",
    absent: undefined,
  });
  log.error("stopping");
  expect(lines).toEqual([
    '18:57:03.120 INFO  request status=200 route=/users/:id token="two words\\n" reason="two words"\n',
    "18:57:03.120 ERROR stopping\n",
  ]);
});

const written: Record<LogLevel, string[]> = {
  debug: ["debug", "info", "warn", "error"],
  info: ["info", "warn", "error"],
  warn: ["warn", "error"],
  error: ["error"],
  silent: [],
};

for (const level of log_levels) {
  test(`\`log\` writes its level and graver ones when the level is ${level}`, () => {
    const { log, lines } = makeLog(level);
    for (const severity of ["debug", "info", "warn", "error"] as const) {
      log[severity](severity);
      expect(log.enabled(severity), severity).toBe(written[level].includes(severity));
    }
    expect(lines.map((line) => JSON.parse(line).event)).toEqual(written[level]);
  });
}
