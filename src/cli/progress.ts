import { MultiBar } from "cli-progress";
import type { Io } from "./context.ts";

/** The progress of a long command: a bar if stderr is a terminal, otherwise nothing. */
export interface Progress extends Disposable {
  /** @param done part of the total */
  update(done: number): void;
  /** Prints a line on stderr, above the bar. */
  note(line: string): void;
}

/** @param total in the unit of `update`; `null` if unknown, and then there is no bar */
export function createProgress(io: Io, total: number | null): Progress {
  if (io.terminal === null || total === null) {
    return {
      update() {},
      note: (line) => io.stderr(`${line}\n`),
      [Symbol.dispose]() {},
    };
  }
  const bars = new MultiBar({
    stream: io.terminal,
    format: "{bar} {percentage}% | {duration_formatted} | about {eta_formatted} left",
    barsize: 30,
    clearOnComplete: true,
    // The package would swallow the first Ctrl-C and leave line wrapping off.
    gracefulExit: false,
    linewrap: true,
  });
  const bar = bars.create(total, 0);
  return {
    update: (done) => bar.update(done),
    note: (line) => bars.log(`${line}\n`),
    [Symbol.dispose]() {
      // Prints the remaining notes.
      bars.update();
      bars.stop();
    },
  };
}
