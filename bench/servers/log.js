/** Log lines are written together every 10 ms, as by the service: one system call per line would cost more. */
import { writeSync } from "node:fs";

const STDOUT = 1;
const DELAY_MS = 10;

export const logEnabled = process.env.LOG === "on";
let waiting = "";

function flush() {
  writeSync(STDOUT, waiting);
  waiting = "";
}

export const logOutput = {
  /** @param {string} line with its line feed */
  write(line) {
    if (waiting === "") setTimeout(flush, DELAY_MS);
    waiting += line;
  },
};

/** Writes one line per request, with the service's fields. */
export function logRequest(method, route, status, startedMs, requestId, token) {
  if (!logEnabled) return;
  const durationMs = Math.round((performance.now() - startedMs) * 1000) / 1000;
  const time = new Date().toISOString();
  const fields = { method, route, status, duration_ms: durationMs, request_id: requestId, token };
  logOutput.write(`${JSON.stringify({ time, level: "info", event: "request", ...fields })}\n`);
}
