/** Runs long statements in a thread of their own, so that the event loop goes on. */

/** One statement, and the database that it is for. */
export interface Task {
  readonly path: string;
  readonly sql: string;
  readonly values: readonly string[];
}

export interface Thread {
  /**
   * One at a time.
   * @returns why the statement failed; `null` when it is done
   * @throws when the thread itself is broken, now and from then on
   */
  run(sql: string, ...values: string[]): Promise<string | null>;
  close(): void;
}

function createWorker(): Worker {
  // Of one folder in the source and in the binary alike: see `--entry-naming` in scripts/build.sh.
  const worker = new Worker(new URL("./thread.worker.ts", import.meta.url).href);
  // An idle one is no reason for the process to go on.
  worker.unref();
  return worker;
}

/** It takes 5 MB, and only when it is first used. @param path of the database, in every process's eyes */
export function createThread(path: string): Thread {
  let worker: Worker | null = null;
  let broken: Error | null = null;
  return {
    async run(sql, ...values) {
      // Nobody may wait for a dead one.
      if (broken !== null) throw broken;
      worker ??= createWorker();
      const { promise, resolve, reject } = Promise.withResolvers<string | null>();
      worker.onmessage = ({ data }: MessageEvent<string | null>) => resolve(data);
      const markBroken = (reason: string) => {
        broken = new Error(reason);
        reject(broken);
      };
      worker.onerror = ({ message }) => markBroken(message);
      worker.onmessageerror = () => markBroken("the thread's answer cannot be read");
      worker.addEventListener("close", () => markBroken("the thread has ended"), { once: true });
      worker.ref();
      worker.postMessage({ path, sql, values } satisfies Task);
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
