/** The archive as the thread of the server sees it. */
import type { Clock } from "../../../base/clock.ts";
import { AppError, type ErrorCode } from "../../../base/error.ts";
import { removeTemporary } from "../../../base/temporary-file.ts";
import type { ArchiveOptions, ArchiveState } from "../../../domain/archive.ts";
import type { FileDescriptors } from "../../file/file-watch.ts";
import { createThread } from "../../file/thread.ts";
import { ARCHIVE_CAUSE, createWriteState } from "../context.ts";
import type { ArchiveRequest, ArchiveResponse } from "./service.ts";

/** How long a write waits for the archive. Then it is rejected, and so are later ones immediately, until the archive responds. */
const CONFIRM_TIMEOUT_MS = 5_000;
/** How long the archive may take to give up a start, or to close. `docker stop` kills after 10 seconds. */
const STOP_TIMEOUT_MS = 7_000;

export type ArchiveClient = Awaited<ReturnType<typeof openArchive>>;

type Failed = Extract<ArchiveResponse, { type: "failed" }>;
type Reply = Failed | Extract<ArchiveResponse, { type: "done" }>;
type Event = Exclude<ArchiveResponse, Reply>;

function archiveError(code: ErrorCode, message: string, cause: Failed["cause"] = ARCHIVE_CAUSE) {
  return new AppError(code, message, { cause });
}

const MAYBE_MADE = "and the write may have been made: try again with the same Idempotency-Key";

function notConfirmed(): AppError {
  return archiveError("unavailable", `the archive does not respond, ${MAYBE_MADE}`);
}

/** The commits that wait for the archive. Each has a ticket: its number. */
function createConfirmations(clock: Clock, post: (ticket: number) => void) {
  /** `expiresMs` is by the monotonic clock. */
  const waiters: (PromiseWithResolvers<void> & { ticket: number; expiresMs: number })[] = [];
  let isWatched = false;
  let lastTicket = 0;
  /** Ticket of the last rejected write that may have been made; `null` if the archive has it. */
  let rejectedTicket: number | null = null;

  function rejectAll(): void {
    for (const waiter of waiters.splice(0)) waiter.reject(notConfirmed());
  }

  /** One timer for all writes that expire, as long as there are any. */
  async function watch(): Promise<void> {
    isWatched = true;
    const next = () => waiters.find(({ expiresMs }) => Number.isFinite(expiresMs));
    for (let first = next(); first !== undefined; first = next()) {
      const leftMs = first.expiresMs - clock.monotonicMs();
      if (leftMs > 0) await clock.sleep(leftMs);
      else {
        rejectedTicket = lastTicket;
        rejectAll();
      }
    }
    isWatched = false;
  }

  return {
    isBehind: () => rejectedTicket !== null,
    /** @param expires whether it is rejected after a while, with all others */
    wait(expires: boolean): Promise<void> {
      const patienceMs = expires ? CONFIRM_TIMEOUT_MS : Number.POSITIVE_INFINITY;
      const expiresMs = clock.monotonicMs() + patienceMs;
      lastTicket += 1;
      post(lastTicket);
      const waiter = { ticket: lastTicket, expiresMs, ...Promise.withResolvers<void>() };
      waiters.push(waiter);
      if (expires && !isWatched) void watch();
      return waiter.promise;
    },
    confirm(confirmed: number): void {
      if (rejectedTicket !== null && rejectedTicket <= confirmed) rejectedTicket = null;
      const first = waiters.findIndex(({ ticket }) => ticket > confirmed);
      for (const waiter of waiters.splice(0, first === -1 ? waiters.length : first))
        waiter.resolve();
    },
    rejectAll,
  };
}

/** @param path without links. @throws {AppError} operator if it must not be created, or the storage is unusable; on abort */
export async function openArchive(path: string, options: ArchiveOptions, clock: Clock) {
  const { createWorker, onLog, onStopped, onSuperseded, onWaiting, signal, ...settings } = options;
  const isSync = settings.commit === "sync";
  const confirmations = createConfirmations(clock, (ticket) =>
    thread.post({ type: "committed", ticket }),
  );
  let reported = { secondsBehind: 0, bytesBehind: 0, lastBaseS: null as number | null };
  /** Not later because the thread is silent. */
  let heldUntilMs = Number.NEGATIVE_INFINITY;
  let isSuperseded = false;
  let disposal: Promise<void> | null = null;
  const writes = createWriteState();
  let isCopy = false;
  let freshMs = Number.NEGATIVE_INFINITY;
  let hasAll = false;

  function onEvent(message: Event): void {
    if (message.type === "confirmed") confirmations.confirm(message.ticket);
    else if (message.type === "fresh") freshMs = clock.monotonicMs() - message.ageMs;
    else if (message.type === "log") onLog(...message.line);
    else if (message.type === "waiting") onWaiting?.(message.what);
    else if (message.type === "state") {
      const { heldForMs, ...state } = message.state;
      reported = state;
      heldUntilMs = clock.monotonicMs() + heldForMs;
    } else {
      isSuperseded = true;
      confirmations.rejectAll();
      const reason = `This server no longer writes to the archive: ${message.reason}`;
      onSuperseded(archiveError("operator", reason));
    }
  }

  const thread = createThread<ArchiveRequest, Reply, Event>(
    createWorker,
    ({ type }) => type === "done" || type === "failed",
    onEvent,
    (reason) => {
      onLog("error", "archive stopped", { reason });
      confirmations.rejectAll();
      onStopped(new Error(`the archive has stopped: ${reason}`));
    },
  );

  async function ask(request: ArchiveRequest): Promise<boolean> {
    const reply = await thread.ask(request);
    if (reply.type === "done") return reply.result;
    const { code, message, cause } = reply;
    throw code === null ? new Error(message) : archiveError(code, message, cause);
  }

  async function askAtStart(request: ArchiveRequest): Promise<boolean> {
    signal.throwIfAborted();
    const { promise: aborted, reject } = Promise.withResolvers<never>();
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    return await Promise.race([ask(request), aborted]);
  }

  async function close(): Promise<void> {
    await Promise.race([ask({ type: "close" }).catch(() => {}), clock.sleep(STOP_TIMEOUT_MS)]);
    thread.terminate();
  }

  function untilConfirmed(expires: boolean): Promise<void> {
    if (isSuperseded || thread.isBroken()) return Promise.reject(notConfirmed());
    return confirmations.wait(expires);
  }

  try {
    isCopy = await askAtStart({ type: "open", path, settings });
    onWaiting?.(null);
  } catch (error) {
    // Nothing is archived yet. The thread may be restoring the database.
    thread.terminate();
    if (signal.aborted) removeTemporary(path);
    throw error;
  }
  return {
    begin() {
      if (isSuperseded) throw archiveError("unavailable", "another server has taken over");
      if (isSync && (confirmations.isBehind() || thread.isBroken()))
        throw archiveError("unavailable", "the archive does not respond");
      if (!writes.begin()) throw archiveError("unavailable", "a standby is about to take over");
    },
    confirm(): Promise<void> | null {
      if (!writes.end()) return Promise.reject(notConfirmed());
      return isSync ? untilConfirmed(true) : null;
    },
    failed(isOfDisk: boolean) {
      if (writes.end()) writes.setFailing(isOfDisk && settings.standby);
    },
    isCopy: () => isCopy,
    /** If so, a standby may take over: write something small each second, and call the other one when that succeeds. */
    isDiskFailing: writes.isFailing,
    noteDiskWorks: () => writes.setFailing(false),
    secondsBehind: () => (isCopy ? (clock.monotonicMs() - freshMs) / 1000 : null),
    /** @returns for how long another server may have taken over, in seconds; `null` if none can have acknowledged a write */
    secondsUnheld(): number | null {
      const unheldMs = clock.monotonicMs() - heldUntilMs;
      // In async mode, a server that has only lost its storage goes on.
      if (!isSync || !settings.standby || unheldMs < 0) return null;
      return (unheldMs + settings.takeoverMs) / 1000;
    },
    hasAll: () => hasAll,
    /** Keeps the copy, whose files are open, up to date, until this server may write. Close them afterwards. */
    async follow(files: FileDescriptors): Promise<void> {
      hasAll = await askAtStart({ type: "follow", files });
      isCopy = false;
    },
    /** Resolves when the archive has all that is committed now, however long that takes. Rejects as `confirm` does */
    untilArchived: () => untilConfirmed(false),
    /** Call it when the files of the database are open, and before anything is written. */
    start: (files: FileDescriptors) => askAtStart({ type: "start", files, memory: writes.memory }),
    checkpoint: () => ask({ type: "checkpoint" }),
    state(): ArchiveState {
      const isReachable = isSuperseded || clock.monotonicMs() < heldUntilMs;
      return { ...reported, isHeld: isReachable && !isSuperseded, isReachable };
    },
    /** Brings the archive up to date and closes it, if the storage responds in time. It does not fail. */
    [Symbol.asyncDispose]() {
      disposal ??= close();
      return disposal;
    },
  };
}
