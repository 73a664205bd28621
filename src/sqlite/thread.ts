/** Runs long statements in a worker thread, so that they do not block the event loop. */

/** One statement, and the path of its database. */
export interface Task {
  readonly path: string;
  readonly sql: string;
  readonly values: readonly string[];
  /** Whether the statement only reads, and the database is at rest. */
  readonly atRest: boolean;
}

export interface Thread {
  /**
   * Runs one statement. Do not call it again before it has resolved.
   * @returns why the statement failed; `null` if it succeeded
   * @throws if the thread itself has failed. Every later call fails too.
   */
  run(sql: string, ...values: string[]): Promise<string | null>;
  close(): void;
}

function createWorker(): Worker {
  // The worker is in the same directory in the source and in the binary: see `--entry-naming` in scripts/build.sh.
  const worker = new Worker(new URL("./thread.worker.ts", import.meta.url).href);
  // An idle worker must not keep the process running.
  worker.unref();
  return worker;
}

/**
 * The worker starts with the first statement, takes 5 MB, and ends the process if it cannot start because too many files
 * are open.
 * @param path path of the database
 * @param atRest whether the statements only read, and the database is at rest
 */
export function createThread(path: string, atRest = false): Thread {
  let worker: Worker | null = null;
  let broken: Error | null = null;
  return {
    async run(sql, ...values) {
      // A dead worker would never reply.
      if (broken !== null) throw broken;
      worker ??= createWorker();
      const { promise, resolve, reject } = Promise.withResolvers<string | null>();
      worker.onmessage = ({ data }: MessageEvent<string | null>) => resolve(data);
      const markBroken = (reason: string) => {
        broken = new Error(reason);
        reject(broken);
      };
      worker.onerror = ({ message }) => markBroken(message);
      worker.onmessageerror = () => markBroken("the reply of the thread cannot be decoded");
      worker.addEventListener("close", () => markBroken("the thread has ended"), { once: true });
      worker.ref();
      worker.postMessage({ path, sql, values, atRest } satisfies Task);
      try {
        return await promise;
      } finally {
        worker.unref();
      }
    },
    close() {
      worker?.terminate();
    },
  };
}
