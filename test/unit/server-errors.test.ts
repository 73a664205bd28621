import { expect, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import { createLog } from "../../src/base/log.ts";
import type { UncheckedCall } from "../../src/http/input/call.ts";
import { createServerErrorLog, errorBody } from "../../src/http/output/error-responses.ts";

const fields = { name: "AppError", code: "email_taken", message: "hunter2", problems: [] };

test.each([
  ["an Error with the fields of an AppError", Object.assign(new Error("hunter2"), fields)],
  ["an object with the fields of an AppError", fields],
  ["a Response", new Response("hunter2", { status: 404 })],
  ["null", null],
  ["a string", "hunter2"],
])('the response is only "internal error" when the error is %s', (_what, error) => {
  const head = { status: 200, headers: { etag: '"1"' } };
  expect(errorBody(head, error, "GET")).toBe("internal error");
  expect(head).toEqual({
    status: 500,
    headers: { "content-type": "text/plain; charset=utf-8" } as never,
  });
});

function createErrorLog(nowMs?: () => number) {
  const lines: Record<string, unknown>[] = [];
  const write = (line: string) => void lines.push(JSON.parse(line));
  const log = createLog("debug", "json", () => new Date(0), write);
  return { logServerError: createServerErrorLog(log, nowMs), lines };
}

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";

function callOf(requestId: string) {
  const headers = { traceparent: `00-${traceId}-00f067aa0ba902b7-01` };
  return { requestId, request: new Request("http://localhost/", { headers }) } as UncheckedCall;
}

function logged(error: unknown): Record<string, unknown>[] {
  const { logServerError, lines } = createErrorLog();
  logServerError(error, callOf("request-1"));
  return lines;
}

const full = new AppError("unavailable", "a message", { cause: new Error("disk full") });
test.each<[string, unknown, object]>([
  ["a bug", new Error("a bug"), { stack: expect.stringContaining("errors.test.ts") }],
  ["null", null, {}],
  ["undefined", undefined, {}],
  ["text", "text", {}],
  ["a message: disk full", full, { level: "warn", event: "unavailable" }],
])("the error log has the reason, the request and its trace: %s", (reason, thrown, more) => {
  const line = { level: "error", event: "internal error", request_id: "request-1" };
  const ofTrace = { time: expect.any(String), trace_id: traceId, reason };
  expect(logged(thrown)).toEqual([{ ...line, ...ofTrace, ...more }]);
});

test("the error log has at most one line a second when responses are 503, and every line when they are 500", () => {
  let timeMs = 0;
  const { logServerError, lines } = createErrorLog(() => timeMs);
  for (timeMs of [0, 500, 999, 1_000, 1_500, 5_000]) {
    logServerError(new AppError("unavailable", `${timeMs}`), callOf("1"));
    for (const error of [new AppError("damaged", "a table"), new Error("a bug")])
      logServerError(error, callOf("2"));
  }
  const levels = Map.groupBy(lines, ({ level }) => level);
  expect(levels.get("warn")?.map(({ reason }) => reason)).toEqual(["0", "1000", "5000"]);
  expect(levels.get("error")).toHaveLength(12);
});
