import { expect, test } from "bun:test";
import { createLog, type LogFormat, type LogLevel } from "../../src/base/log.ts";

const time = () => new Date("2026-11-20T18:57:03.120Z");

function makeLog(level: LogLevel, format: LogFormat = "json", now = time) {
  const lines: string[] = [];
  return { log: createLog(level, format, now, (line) => lines.push(line)), lines };
}

const request = {
  ...{ method: "GET", route: "/api/v1/users/:id", status: 200, duration_ms: 1.234 },
  ...{ request_id: "a-1", token: "ci" },
};
const url = "http://127.0.0.1:3000/api/v1/users/7?access_token=secret#part";

test("log writes an event as one JSON line, with the fields that it has, and a request with its route", () => {
  const { log, lines } = makeLog("info");
  log.info("sent", { status: 200, path: "/a\nb", ok: true, token: null, absent: undefined });
  log.warn("cleanup failed");
  log.request(request, url);
  log.request({ ...request, route: "/*" }, `http://a/${"x".repeat(200)}?access_token=secret`);
  const start = '{"time":"2026-11-20T18:57:03.120Z","level":';
  const rest = '"status":200,"duration_ms":1.234,"request_id":"a-1","token":"ci"';
  const path = `/${"x".repeat(99)}...`;
  expect(lines).toEqual([
    `${start}"info","event":"sent","status":200,"path":"/a\\nb","ok":true,"token":null}\n`,
    `${start}"warn","event":"cleanup failed"}\n`,
    `${start}"info","event":"request","method":"GET","route":"/api/v1/users/:id",${rest}}\n`,
    `${start}"info","event":"request","method":"GET","route":"/*",${rest},"path":"${path}"}\n`,
  ]);
});

test("log writes an event as one line of text, and a request with its path, when the format is text", () => {
  const { log, lines } = makeLog("info", "text");
  log.info("sent", { status: 200, route: "/users/:id", token: "two words\n", absent: undefined });
  log.error("stopping");
  log.request(request, url);
  for (const path of ["", "/", "?a=b", `/${"x".repeat(5000)}`, "/a\u001b[31m\nb"]) {
    log.request({ ...request, status: 404, route: "/*" }, `http://a${path}`);
  }
  expect(lines).toEqual([
    '18:57:03 INFO  sent status=200 route=/users/:id token="two words\\n"\n',
    "18:57:03 ERROR stopping\n",
    "18:57:03 GET /api/v1/users/7 200 1.2 ms\n",
    ...["/", "/", "/"].map((path) => `18:57:03 GET ${path} 404 1.2 ms ${request.request_id}\n`),
    `18:57:03 GET /${"x".repeat(99)}... 404 1.2 ms ${request.request_id}\n`,
    `18:57:03 GET /a?[31m?b 404 1.2 ms ${request.request_id}\n`,
  ]);
  const clock = [1, 1, 2, 1].map((ms) => new Date(ms));
  const later = makeLog("info", "json", () => clock.shift() ?? time());
  while (clock.length > 0) later.log.info("event");
  expect(later.lines.map((line) => Date.parse(JSON.parse(line).time))).toEqual([1, 1, 2, 1]);
});

const severities = ["debug", "info", "warn", "error"] as const;

test.each([...severities, "silent"] as const)(
  "log writes its level and higher ones when the level is %s",
  (level) => {
    const { log, lines } = makeLog(level);
    const written = level === "silent" ? [] : severities.slice(severities.indexOf(level));
    for (const severity of severities) log[severity](severity);
    expect(severities.filter(log.enabled)).toEqual(written);
    expect(lines.map((line) => JSON.parse(line).event)).toEqual(written);
  },
);
