/** What the thread of the archive does for the thread of the server, and the messages between them. */

import { AppError, type ErrorCode, messageOf } from "../../base/error.ts";
import type { ArchiveLog, ArchiveSettings } from "../../domain/archive.ts";
import type { OpenStorage } from "../../domain/object-storage.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { type Archiver, createArchiver } from "./archiver.ts";
import { type ArchiveReport, DIVERGED, RESTORE_AGAIN } from "./context.ts";
import { ensureDatabase } from "./ensure-database.ts";
import { follow } from "./follow.ts";
import { holderName, lockIdentity } from "./identity.ts";
import { type CopyStart, prepareCopy } from "./standby.ts";
import { systemClock } from "./still.ts";

const MAX_WAL_BYTES = 2 ** 30;

export type ArchiveRequest =
  | {
      readonly type: "open";
      readonly path: string;
      readonly settings: ArchiveSettings;
    }
  /** Call it after `open` has said that another server writes to the archive. It ends when this one may. */
  | {
      readonly type: "follow";
      readonly path: string;
      readonly files: FileDescriptors;
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
      /** What the server can do about it; `null` if nothing. */
      readonly cause: typeof DIVERGED | typeof RESTORE_AGAIN | null;
    }
  /** The database is a copy, which had everything that another server had acknowledged, at this age. */
  | { readonly type: "fresh"; readonly ageMs: number }
  /** The copy has all of the archive. @see follow */
  | { readonly type: "followed"; readonly hasAll: boolean }
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
  /** The copy, if another server writes to the archive. */
  let copyStart: CopyStart | null = null;
  /** The last `open`, `follow` or `start`. */
  let begun: Promise<void> = Promise.resolve();
  const log: ArchiveLog = (...line) => respond({ type: "log", line });
  const stopping = new AbortController();
  const { signal } = stopping;

  async function open({ path, settings }: Request<"open">): Promise<void> {
    const storage = openStorage(settings.url, settings.environment);
    const options = {
      path,
      restoreIfMissing: settings.restore === "if-missing",
      holder: holderName(path),
      clock: systemClock,
      signal,
      log,
      verify,
    };
    const waitMs = settings.wasSuperseded ? 2 * settings.takeoverMs : 0;
    copyStart = settings.standby ? await prepareCopy(storage, options, waitMs) : null;
    if (copyStart === null) await ensureDatabase(storage, options);
    else respond({ type: "fresh", ageMs: Math.max(0, Date.now() - copyStart.timeMs) });
  }

  async function followOther({ path, files, settings }: Request<"follow">): Promise<void> {
    if (copyStart === null) throw new Error("no other server was found");
    const { url, environment, takeoverMs, wasSuperseded } = settings;
    const hasAll = await follow({
      path,
      files,
      start: copyStart,
      storage: openStorage(url, environment),
      holder: holderName(path),
      takeoverMs,
      wasSuperseded,
      clock: systemClock,
      nowMs: Date.now,
      signal,
      log,
      onFresh: (ageMs) => respond({ type: "fresh", ageMs }),
    });
    respond({ type: "followed", hasAll });
  }

  async function start({ path, files, settings }: Request<"start">): Promise<void> {
    const { url, environment, intervalMs, keepMs, commit, takeoverMs, standby } = settings;
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
      standby,
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
      case "follow":
        begun = followOther(request);
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
      const known = error instanceof AppError ? error.cause : null;
      const cause = known === DIVERGED || known === RESTORE_AGAIN ? known : null;
      respond({ type: "failed", code, message: messageOf(error), cause });
    }
  };
}
