/** Log lines written together every 10 ms, as the service does: a system call each would cost more. */
import { writeSync } from "node:fs";

const STDOUT = 1;
const DELAY_MS = 10;

/** @param {boolean} enabled without it nothing is written */
export function createOutput(enabled) {
  let waiting = "";
  function flush() {
    writeSync(STDOUT, waiting);
    waiting = "";
  }
  return {
    enabled,
    /** @param {string} line with its line feed */
    write(line) {
      if (waiting === "") setTimeout(flush, DELAY_MS);
      waiting += line;
    },
  };
}

/**
 * One line a request, with the service's fields.
 * @param {ReturnType<typeof createOutput>} output
 */
export function createRequestLog(output) {
  return (method, route, status, started_ms, request_id, token) => {
    if (!output.enabled) return;
    const duration_ms = Math.round((performance.now() - started_ms) * 1000) / 1000;
    const time = new Date().toISOString();
    const event = { method, route, status, duration_ms, request_id, token };
    output.write(`${JSON.stringify({ time, level: "info", event: "request", ...event })}\n`);
  };
}
