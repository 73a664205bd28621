/** Runs long statements in a worker thread, so that they do not block the event loop. */

export interface Task {
  readonly path: string;
  readonly sql: string;
  readonly values: readonly string[];
  /** Whether the statement only reads, and the database is at rest. */
  readonly atRest: boolean;
}

/**
 * The worker starts with the first statement, takes 5 MB, and ends the process if it cannot start because too many files
 * are open.
 * @param atRest whether the statements only read, and the database is at rest
 */
export function createThread(path: string, atRest = false) {
  let worker: Worker | null = null;
  let broken: Error | null = null;
  /** Of the statement that runs. */
  let reply: PromiseWithResolvers<string | null> | null = null;

  function markBroken(reason: string): void {
    broken = new Error(reason);
    reply?.reject(broken);
  }

  function start(): Worker {
    // The worker is in the same directory in the source and in the binary: see `--entry-naming` in scripts/build.sh.
    const started = new Worker(new URL("./thread.worker.ts", import.meta.url).href);
    started.onmessage = ({ data }: MessageEvent<string | null>) => reply?.resolve(data);
    started.onerror = ({ message }) => markBroken(message);
    started.addEventListener("close", () => markBroken("the thread has ended"));
    return started;
  }

  return {
    /**
     * Runs one statement. Do not call it again before it has resolved.
     * @returns why the statement failed; `null` if it succeeded
     * @throws if the thread itself has failed. Every later call fails too.
     */
    async run(sql: string, ...values: string[]): Promise<string | null> {
      // A dead worker would never reply.
      if (broken !== null) throw broken;
      worker ??= start();
      reply = Promise.withResolvers();
      worker.ref();
      worker.postMessage({ path, sql, values, atRest } satisfies Task);
      try {
        return await reply.promise;
      } finally {
        // An idle worker must not keep the process running.
        worker.unref();
      }
    },
    close(): void {
      worker?.terminate();
    },
  };
}
