/** What the thread of the archive does for the thread of the server, and the messages between them. */

import { AppError, type ErrorCode, fail, messageOf } from "../../base/error.ts";
import type { ArchiveLog, ArchiveSettings, ArchiveState } from "../../domain/archive.ts";
import { createLease, type Lease, systemClock } from "../../domain/lease.ts";
import type { ObjectStorage, OpenStorage } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { requireDatabase } from "../whole/missing.ts";
import { type Archiver, createArchiver } from "./archiver.ts";
import { newestNumber } from "./contents.ts";
import { holderName, lockIdentity } from "./identity.ts";

const MAX_WAL_BYTES = 2 ** 30;

/** A request of the lease must time out before the lease does. */
const LEASE = { durationMs: 15_000, intervalMs: 5_000, timeoutMs: 4_000 };

export type ArchiveRequest =
  | {
      readonly type: "open";
      readonly path: string;
      readonly settings: ArchiveSettings;
    }
  | {
      readonly type: "start";
      /** Path of the file, not of a symbolic link to it: its other files are next to it. */
      readonly path: string;
      readonly files: FileDescriptors;
    }
  | { readonly type: "checkpoint" }
  /** Also ends a request that is waiting. */
  | { readonly type: "close" }
  /** It has no response. */
  | { readonly type: "committed"; readonly commit: number };

export type ArchiveResponse =
  | { readonly type: "done" }
  | { readonly type: "closed" }
  | { readonly type: "failed"; readonly code: ErrorCode | null; readonly message: string }
  | { readonly type: "confirmed"; readonly commit: number }
  /** Another server has the archive. */
  | { readonly type: "lost" }
  | { readonly type: "state"; readonly state: ArchiveState }
  | { readonly type: "log"; readonly line: Parameters<ArchiveLog> };

type Request<Type extends ArchiveRequest["type"]> = Extract<ArchiveRequest, { type: Type }>;

interface Opened {
  readonly request: Request<"open">;
  readonly storage: ObjectStorage;
}

/** @returns handles a request. Those that have a response are sent one by one, except the last */
export function createArchiveService(
  openStorage: OpenStorage,
  respond: (response: ArchiveResponse) => void,
): (request: ArchiveRequest) => Promise<void> {
  let opened: Opened | null = null;
  /** The lease under which the database was restored. */
  let restoredUnder: Lease | null = null;
  /** That of the lock of the database. As long as there is no database, no process has its lock. */
  let identity: string = crypto.randomUUID();
  let archiver: Archiver | null = null;
  /** The last `open` or `start`. */
  let begun: Promise<void> = Promise.resolve();
  const log: ArchiveLog = (...line) => respond({ type: "log", line });
  const stopping = new AbortController();
  const { promise: stopped, reject: endWaiting } = Promise.withResolvers<never>();
  stopped.catch(() => {});
  stopping.signal.addEventListener("abort", () => endWaiting(stopping.signal.reason));

  /** @returns a storage whose reads fail when the server is stopped */
  function untilStopped(storage: ObjectStorage): ObjectStorage {
    const orStopped = <Result>(work: Promise<Result>) => Promise.race([work, stopped]);
    return {
      ...storage,
      get: (key) => orStopped(storage.get(key)),
      list: (...args) => orStopped(storage.list(...args)),
    };
  }

  function reportLease(error: AppError | null): void {
    if (archiver !== null) archiver.reportLease(error);
    else if (error !== null) log("warn", "archive not reached", { reason: messageOf(error) });
  }

  /** @returns a lease, which is not acquired yet */
  function newLease({ request, storage }: Opened): Lease {
    const { path, settings } = request;
    const { url, environment } = settings;
    const lease = createLease(openStorage(url, environment, LEASE.timeoutMs), {
      key: "lease",
      holder: holderName(path),
      identity: () => identity,
      lastNumber: () => newestNumber(storage),
      durationMs: LEASE.durationMs,
      intervalMs: LEASE.intervalMs,
      clock: systemClock,
      onWait: (holder) => log("info", "waiting for the archive", { holder }),
      onProblem: reportLease,
    });
    const acquire = (signal: AbortSignal) =>
      lease.acquire(AbortSignal.any([signal, stopping.signal]));
    return { ...lease, acquire };
  }

  async function open(request: Request<"open">): Promise<void> {
    const { path, settings } = request;
    const storage = openStorage(settings.url, settings.environment);
    opened = { request, storage };
    const current = opened;
    await requireDatabase(untilStopped(storage), path, {
      restoreIfMissing: settings.restore === "if-missing",
      log,
      async acquireLease() {
        restoredUnder = newLease(current);
        await restoredUnder.acquire(stopping.signal);
      },
    });
  }

  async function start({ path, files }: Request<"start">): Promise<void> {
    if (opened === null) fail("internal", "the archive is not open");
    const current = opened;
    const { intervalMs, keepMs, commit } = current.request.settings;
    identity = lockIdentity(path);
    archiver = createArchiver({
      path,
      files,
      storage: current.storage,
      newLease() {
        const lease = restoredUnder ?? newLease(current);
        restoredUnder = null;
        return lease;
      },
      intervalMs,
      keepMs,
      maxWalBytes: MAX_WAL_BYTES,
      nowMs: Date.now,
      log,
      onConfirmed: (confirmed) => respond({ type: "confirmed", commit: confirmed }),
      onLost: () => respond({ type: "lost" }),
      onState: (state) => respond({ type: "state", state }),
    });
    await archiver.start();
    if (commit === "sync") await Promise.race([archiver.untilBase(), stopped]);
  }

  async function close(): Promise<void> {
    stopping.abort(new AppError("operator", "interrupted"));
    await begun.catch(() => {});
    try {
      await archiver?.close();
      await restoredUnder?.release();
    } catch (error) {
      log("warn", "archive not complete", { reason: messageOf(error) });
    }
    respond({ type: "closed" });
  }

  async function handle(request: ArchiveRequest): Promise<void> {
    switch (request.type) {
      case "open":
        begun = open(request);
        return begun;
      case "start":
        begun = start(request);
        return begun;
      case "checkpoint":
        return archiver?.checkpoint();
      case "close":
        return close();
      case "committed":
        return archiver?.committed(request.commit);
    }
  }

  return async (request) => {
    try {
      await handle(request);
      if (request.type !== "committed" && request.type !== "close") respond({ type: "done" });
    } catch (error) {
      const code = error instanceof AppError ? error.code : null;
      respond({ type: "failed", code, message: messageOf(error) });
    }
  };
}
