/** What the thread of the archive does for the thread of the server, and the messages between them. */

import { AppError, type ErrorCode, messageOf } from "../../base/error.ts";
import type { ArchiveLog, ArchiveSettings } from "../../domain/archive.ts";
import type { OpenStorage } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { type Archiver, createArchiver, DIVERGED } from "./archiver.ts";
import type { ArchiveReport } from "./context.ts";
import { ensureDatabase } from "./ensure-database.ts";
import { holderName, lockIdentity } from "./identity.ts";
import { systemClock } from "./still.ts";

const MAX_WAL_BYTES = 2 ** 30;

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
      readonly settings: ArchiveSettings;
    }
  | { readonly type: "checkpoint" }
  /** Also ends a request that is waiting. */
  | { readonly type: "close" }
  /** It has no response. */
  | { readonly type: "committed"; readonly ticket: number };

export type ArchiveResponse =
  | { readonly type: "done" }
  | {
      readonly type: "failed";
      /** `null` for a bug. */
      readonly code: ErrorCode | null;
      readonly message: string;
      /** Whether the archive has another history than the database. */
      readonly isDiverged: boolean;
    }
  | { readonly type: "confirmed"; readonly ticket: number }
  /** Another server has the archive. */
  | { readonly type: "lost"; readonly reason: string }
  | { readonly type: "state"; readonly state: ArchiveReport }
  | { readonly type: "log"; readonly line: Parameters<ArchiveLog> };

type Request<Type extends ArchiveRequest["type"]> = Extract<ArchiveRequest, { type: Type }>;

interface ServiceOptions {
  readonly openStorage: OpenStorage;
  /** @throws {AppError} operator if the database at this path is damaged */
  readonly verify: (path: string) => void;
  readonly respond: (response: ArchiveResponse) => void;
}

/** @returns a function that handles a request. All but `committed` have a response, in their order */
export function createArchiveService({ openStorage, verify, respond }: ServiceOptions) {
  let archiver: Archiver | null = null;
  /** The last `open` or `start`. */
  let begun: Promise<void> = Promise.resolve();
  const log: ArchiveLog = (...line) => respond({ type: "log", line });
  const stopping = new AbortController();
  const { signal } = stopping;

  async function open({ path, settings }: Request<"open">): Promise<void> {
    await ensureDatabase(openStorage(settings.url, settings.environment), {
      path,
      restoreIfMissing: settings.restore === "if-missing",
      holder: holderName(path),
      clock: systemClock,
      signal,
      log,
      verify,
    });
  }

  async function start({ path, files, settings }: Request<"start">): Promise<void> {
    const { url, environment, intervalMs, keepMs, commit, takeoverMs } = settings;
    archiver = createArchiver({
      path,
      files,
      storage: openStorage(url, environment),
      identity: lockIdentity(path),
      holder: holderName(path),
      intervalMs,
      keepMs,
      commit,
      takeoverMs,
      maxWalBytes: MAX_WAL_BYTES,
      nowMs: Date.now,
      clock: systemClock,
      signal,
      log,
      onConfirmed: (ticket) => respond({ type: "confirmed", ticket }),
      onLost: (reason) => respond({ type: "lost", reason }),
      onState: (state) => respond({ type: "state", state }),
    });
    await archiver.start();
    if (commit === "sync") await archiver.untilBase();
  }

  async function close(): Promise<void> {
    stopping.abort(new AppError("operator", "interrupted"));
    await begun.catch(() => {});
    try {
      await archiver?.close();
    } catch (error) {
      log("warn", "archive not complete", { reason: messageOf(error) });
    }
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
        return archiver?.committed(request.ticket);
    }
  }

  return async (request: ArchiveRequest): Promise<void> => {
    try {
      await handle(request);
      if (request.type !== "committed") respond({ type: "done" });
    } catch (error) {
      const code = error instanceof AppError ? error.code : null;
      const isDiverged = error instanceof AppError && error.cause === DIVERGED;
      respond({ type: "failed", code, message: messageOf(error), isDiverged });
    }
  };
}
