/** The archive as the thread of the server sees it. */

import { AppError, type ErrorCode } from "../../base/error.ts";
import { removeTemporary } from "../../base/temporary-file.ts";
import type { ArchiveOptions, ArchiveState } from "../../domain/archive.ts";
import type { CommitGate } from "../engine/writer.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import type { ArchiveRequest, ArchiveResponse } from "./service.ts";

/** Marks an error of the archive: the database itself may be sound. */
export const ARCHIVE_CAUSE = "archive";
/** The same, if the archive has another history than the database. */
export const DIVERGED_CAUSE = "archive diverged";

/** How long a write waits for the archive. Then it is rejected, and so are later ones immediately, until the archive responds. */
const CONFIRM_TIMEOUT_MS = 5_000;
const CHECK_INTERVAL_MS = 250;
/** How long the archive may take to give up a start, or to close. `docker stop` kills after 10 seconds. */
const STOP_TIMEOUT_MS = 7_000;

/** Disposing of it brings the archive up to date and closes it, if the storage responds in time. It does not fail. */
export interface ArchiveClient extends CommitGate, AsyncDisposable {
  /**
   * Call it when the files of the database are open, and before anything is written.
   * @param path of the file, not of a symbolic link to it
   * @throws {AppError}
   * @throws the reason of the signal
   */
  start(path: string, files: FileDescriptors): Promise<void>;
  checkpoint(): Promise<void>;
  state(): ArchiveState;
}

type Failed = Extract<ArchiveResponse, { type: "failed" }>;

interface Waiter {
  readonly ticket: number;
  readonly sinceMs: number;
  readonly resolve: () => void;
  readonly reject: (error: AppError) => void;
}

function archiveError(code: ErrorCode, message: string, cause = ARCHIVE_CAUSE): AppError {
  return new AppError(code, message, { cause });
}

function errorOf({ code, message, isDiverged }: Failed): Error {
  if (code === null) return new Error(message);
  return archiveError(code, message, isDiverged ? DIVERGED_CAUSE : ARCHIVE_CAUSE);
}

function notConfirmed(): AppError {
  return archiveError(
    "unavailable",
    "the archive does not respond, and the write may have been made: try again with the same Idempotency-Key",
  );
}

/**
 * Starts the thread, and restores the database if it is missing and the options allow it.
 * @throws {AppError} operator if the database is missing and must not be created, or the storage cannot be used
 * @throws the reason of the signal
 */
export async function openArchive(path: string, options: ArchiveOptions): Promise<ArchiveClient> {
  const { createWorker, onLog, onStopped, signal, ...settings } = options;
  const isSync = settings.commit === "sync";
  const worker = createWorker();
  // The listener of the server keeps the process running.
  worker.unref();
  let state: ArchiveState = {
    secondsBehind: 0,
    bytesBehind: 0,
    lastBaseS: null,
  };
  /** A bug in the thread. */
  let broken: Error | null = null;
  let disposed = false;
  /** Whether another server has the archive. */
  let isLost = false;
  let response: PromiseWithResolvers<void> | null = null;
  /** The last request. */
  let asked: Promise<void> = Promise.resolve();
  let disposal: Promise<void> | null = null;
  const closed = Promise.withResolvers<void>();
  const aborted = Promise.withResolvers<never>();
  aborted.promise.catch(() => {});
  signal.addEventListener("abort", () => aborted.reject(signal.reason), { once: true });
  let lastTicket = 0;
  const waiters: Waiter[] = [];
  /** The last write that was rejected although it may have been made; `null` if the archive has it. */
  let rejectedTicket: number | null = null;

  function rejectAll(error: AppError): void {
    for (const waiter of waiters.splice(0)) waiter.reject(error);
  }

  /** @param message of Bun, which can have lines of the source */
  function markBroken(message: string): void {
    if (broken !== null || disposed) return;
    const reason = /^\w*error: (.+)$/im.exec(message)?.[1] ?? message.split("\n", 1)[0] ?? "";
    broken = new Error(`the archive has stopped: ${reason}`);
    onLog("error", "archive stopped", { reason });
    response?.reject(broken);
    rejectAll(notConfirmed());
    closed.resolve();
    onStopped(broken);
  }

  function confirm(confirmed: number): void {
    if (rejectedTicket !== null && rejectedTicket <= confirmed) rejectedTicket = null;
    const count = waiters.findIndex(({ ticket }) => ticket > confirmed);
    for (const waiter of waiters.splice(0, count === -1 ? waiters.length : count)) waiter.resolve();
  }

  worker.onmessage = ({ data }: MessageEvent<ArchiveResponse>) => {
    switch (data.type) {
      case "done":
        return response?.resolve();
      case "closed":
        return closed.resolve();
      case "failed":
        return response?.reject(errorOf(data));
      case "confirmed":
        return confirm(data.ticket);
      case "lost":
        isLost = true;
        rejectAll(notConfirmed());
        return onStopped(archiveError("operator", `The archive is lost: ${data.reason}`));
      case "state":
        state = data.state;
        return;
      case "log":
        return onLog(...data.line);
    }
  };
  worker.onerror = ({ message }) => markBroken(message);
  worker.addEventListener("close", () => markBroken("the thread of the archive has ended"), {
    once: true,
  });

  function post(request: ArchiveRequest): void {
    worker.postMessage(request);
  }

  async function send(request: ArchiveRequest): Promise<void> {
    if (broken !== null) throw broken;
    response = Promise.withResolvers<void>();
    worker.ref();
    post(request);
    try {
      await response.promise;
    } finally {
      response = null;
      worker.unref();
    }
  }

  /** Requests are sent one by one: a response does not say to which it belongs. */
  function ask(request: ArchiveRequest): Promise<void> {
    const answered = asked.then(() => send(request));
    asked = answered.catch(() => {});
    return answered;
  }

  /** Sends a request of the start, which the signal ends. */
  async function askAtStart(request: ArchiveRequest): Promise<void> {
    signal.throwIfAborted();
    await Promise.race([ask(request), aborted.promise]);
  }

  const timer = setInterval(() => {
    const [oldest] = waiters;
    if (oldest === undefined || performance.now() - oldest.sinceMs < CONFIRM_TIMEOUT_MS) return;
    rejectedTicket = lastTicket;
    rejectAll(notConfirmed());
  }, CHECK_INTERVAL_MS);
  timer.unref();

  async function close(): Promise<void> {
    worker.ref();
    post({ type: "close" });
    setTimeout(closed.resolve, STOP_TIMEOUT_MS).unref();
    await closed.promise;
    disposed = true;
    clearInterval(timer);
    worker.terminate();
  }

  function dispose(): Promise<void> {
    disposal ??= close();
    return disposal;
  }

  try {
    await askAtStart({ type: "open", path, settings });
  } catch (error) {
    await dispose();
    // The thread may have been terminated while it restored the database.
    if (signal.aborted) removeTemporary(path);
    throw error;
  }
  return {
    start: (path, files) => askAtStart({ type: "start", path, files }),
    checkpoint: () => ask({ type: "checkpoint" }),
    state: () => state,
    requireOpen() {
      if (isLost) throw archiveError("unavailable", "another server has taken over");
      if (!isSync || (rejectedTicket === null && broken === null)) return;
      throw archiveError("unavailable", "the archive does not respond");
    },
    confirm() {
      if (!isSync) return null;
      lastTicket += 1;
      if (broken !== null) return Promise.reject(notConfirmed());
      post({ type: "committed", ticket: lastTicket });
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      waiters.push({ ticket: lastTicket, sinceMs: performance.now(), resolve, reject });
      return promise;
    },
    [Symbol.asyncDispose]: dispose,
  };
}
