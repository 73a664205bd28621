import { escapeInvisible } from "../base/readable-text.ts";
import type { System } from "./files/system.ts";

/** The progress of a long command: a bar if stderr is a terminal, otherwise nothing. */
export interface Progress extends Disposable {
  /** @param done part of the total */
  update(done: number): void;
  /** Prints a line on stderr, above the bar. */
  note(line: string): void;
}

const BAR_WIDTH = 30;
const REDRAW_MS = 100;
/** Moves the cursor to the start of the line, and erases the line. */
const CLEAR_LINE = "\r\u001b[K";

/** @returns minutes and seconds, e.g. `1m30s` */
function formatDuration(durationMs: number): string {
  const seconds = Math.round(durationMs / 1000);
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

/** @param fraction from 0 to 1 */
function formatBar(fraction: number, elapsedMs: number): string {
  const filled = Math.round(BAR_WIDTH * fraction);
  const bar = "█".repeat(filled) + "░".repeat(BAR_WIDTH - filled);
  const left =
    fraction === 0 ? "" : ` | about ${formatDuration(elapsedMs / fraction - elapsedMs)} left`;
  return `${bar} ${Math.floor(fraction * 100)}% | ${formatDuration(elapsedMs)}${left}`;
}

/** @param total in the unit of `update`; `null` if unknown, and then there is no bar */
export function createProgress(system: System, total: number | null): Progress {
  const { terminalColumns, stderr } = system;
  if (terminalColumns === null || total === null) {
    return {
      update() {},
      note: (text) => stderr(`${escapeInvisible(text)}\n`),
      [Symbol.dispose]() {},
    };
  }
  const startedMs = performance.now();
  let drawnMs = Number.NEGATIVE_INFINITY;
  let line = "";
  const update = (done: number): void => {
    const nowMs = performance.now();
    if (done < total && nowMs - drawnMs < REDRAW_MS) return;
    drawnMs = nowMs;
    const text = formatBar(total === 0 ? 1 : Math.min(done / total, 1), nowMs - startedMs);
    // A line that wraps could not be cleared.
    line = text.slice(0, terminalColumns - 1);
    stderr(CLEAR_LINE + line);
  };
  update(0);
  return {
    update,
    note: (text) => stderr(`${CLEAR_LINE}${escapeInvisible(text)}\n${line}`),
    [Symbol.dispose]: () => stderr(CLEAR_LINE),
  };
}
