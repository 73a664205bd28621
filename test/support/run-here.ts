import { systemClock } from "../../src/base/clock.ts";
import { openInput, openOutput } from "../../src/cli/system/streams.ts";
import type { StopReason, System } from "../../src/cli/system/system.ts";
import { backendOf, createArchiveWorker, main, schemaVersions } from "../../src/main.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import { takeServerLock } from "../../src/sqlite/file/server-lock.ts";
import { sqliteArchive } from "../../src/sqlite/whole/archive.ts";
import { LISTENING, type Outcome } from "./program.ts";

export type RunningHere = ReturnType<typeof runHere>;

export const sockets: System["sockets"] = {
  limitOpenFiles: () => 65_536,
  closeIdle: () => ({ [Symbol.dispose]() {} }),
  sharePort: () => false,
};

/** Runs a command in this process. @param parts replace those of a system with much memory, and without a terminal */
export function runHere(args: readonly string[], parts: Partial<System>) {
  const printed = { stdout: "", stderr: "" };
  const stopped = Promise.withResolvers<StopReason>();
  const waiting: { pattern: RegExp; resolve: (output: string) => void }[] = [];
  const output = () => printed.stdout + printed.stderr;
  function wake(): void {
    for (const { pattern, resolve } of waiting) if (pattern.test(output())) resolve(output());
  }
  const printTo = (stream: keyof typeof printed) => (text: string) => {
    printed[stream] += text;
    wake();
  };
  const print = printTo("stdout");
  const ended = main([...args], {
    program: "./user-api",
    environment: {},
    backendOf,
    archive: sqliteArchive,
    schemaVersions,
    openStorage,
    createArchiveWorker,
    stdoutIsTerminal: false,
    now: () => new Date(),
    clock: systemClock,
    stdout: print,
    openLog: () => ({ write: print, droppedLines: () => 0, onResume() {} }),
    stderr: printTo("stderr"),
    openInput,
    openOutput,
    lockFile: (path) => takeServerLock(path, "exclusive", 0),
    untilStopped: () => stopped.promise,
    onHangup() {},
    memoryBytes: 2 ** 40,
    sockets,
    ...parts,
  }).then((code): Outcome => ({ code, ...printed }));
  const exited = ended.then((outcome) => {
    throw new Error(`It exited before it printed that: ${outcome.stderr}`);
  });
  exited.catch(() => {});
  /** Resolves with the output so far once it matches. Rejects if the command ends before that. */
  function untilPrinted(pattern: RegExp): Promise<string> {
    const { promise, resolve } = Promise.withResolvers<string>();
    waiting.push({ pattern, resolve });
    wake();
    return Promise.race([promise, exited]);
  }
  return {
    output,
    printed: untilPrinted,
    listening: async () => LISTENING.exec(await untilPrinted(LISTENING))?.[1] ?? "",
    ended,
    stop(reason: StopReason = { by: "signal", signal: "SIGTERM" }) {
      stopped.resolve(reason);
      return ended;
    },
  };
}
