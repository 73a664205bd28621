/** Requests to worker threads, so that what takes long does not block the event loop. */

/**
 * The worker starts with the first request, and responds to requests in their order. It takes 5 MB, and ends the process
 * if it cannot start because too many files are open.
 * @param isReply whether a message responds to a request; all others go to `onEvent`
 * @param onBroken called once if the thread itself fails
 */
export function createThread<Request, Reply, Event = never>(
  create: () => Worker,
  isReply: (message: Reply | Event) => boolean,
  onEvent: (event: Event) => void = () => {},
  onBroken: (reason: string) => void = () => {},
) {
  let worker: Worker | null = null;
  let broken: Error | null = null;
  let isClosing = false;
  const requests: PromiseWithResolvers<Reply>[] = [];

  /** @param message of Bun, which can have lines of the source */
  function markBroken(message: string): void {
    if (broken !== null) return;
    const reason = /^\w*error: (.+)$/im.exec(message)?.[1] ?? message.split("\n", 1)[0] ?? "";
    broken = new Error(reason);
    for (const { reject } of requests.splice(0)) reject(broken);
    if (!isClosing) onBroken(reason);
  }

  function open(): Worker {
    if (worker !== null) return worker;
    worker = create();
    worker.onmessage = ({ data }: MessageEvent<Reply | Event>) => {
      if (isReply(data)) requests.shift()?.resolve(data as Reply);
      else onEvent(data as Event);
    };
    worker.onerror = ({ message }) => markBroken(message);
    worker.addEventListener("close", () => markBroken("the thread has ended"), { once: true });
    return worker;
  }

  return {
    /** @throws if the thread itself has failed. Every later call fails too. */
    async ask(request: Request): Promise<Reply> {
      // A dead worker would never reply.
      if (broken !== null) throw broken;
      const response = Promise.withResolvers<Reply>();
      requests.push(response);
      open().ref();
      open().postMessage(request);
      try {
        return await response.promise;
      } finally {
        // An idle worker must not keep the process running.
        if (requests.length === 0) worker?.unref();
      }
    },
    post: (request: Request) => open().postMessage(request),
    isBroken: () => broken !== null,
    terminate(): void {
      isClosing = true;
      worker?.terminate();
    },
  };
}

export interface Task {
  readonly path: string;
  readonly sql: string;
  readonly values: readonly string[];
  readonly atRest: boolean;
}

/** @param atRest whether the statements only read, and the database is at rest */
export function createStatementThread(path: string, atRest = false) {
  // The worker is in the same directory in the source and in the binary: see `--entry-naming` in scripts/build.sh.
  const create = () => new Worker(new URL("./thread.worker.ts", import.meta.url).href);
  const { ask, terminate } = createThread<Task, string | null>(create, () => true);
  return {
    run: (sql: string, ...values: string[]) => ask({ path, sql, values, atRest }),
    close: terminate,
  };
}
