import { MultiBar } from "cli-progress";
import type { Io } from "./context.ts";

/** How far a long command is: a bar where stderr is a terminal, nothing where it is none. */
export interface Progress extends Disposable {
  /** @param done of the total */
  update(done: number): void;
  /** A line on stderr. */
  note(line: string): void;
}

/** @param total in the unit of `update`; `null` when nobody knows, and so no bar is drawn */
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
    // Else it would keep the first Ctrl-C to itself, and leave the terminal without line breaks.
    gracefulExit: false,
    linewrap: true,
  });
  const bar = bars.create(total, 0);
  return {
    update: (done) => bar.update(done),
    note: (line) => bars.log(`${line}\n`),
    [Symbol.dispose]() {
      // What was noted last.
      bars.update();
      bars.stop();
    },
  };
}
