/** What the thread of the archive does for the thread of the server, and the messages between them. */
import { AppError, type ErrorCode, messageOf } from "../../../base/error.ts";
import type { ArchiveLog, ArchiveSettings } from "../../../domain/archive.ts";
import { type OpenStorage, withRetries } from "../../../domain/object-storage.ts";
import type { FileDescriptors } from "../../file/file-watch.ts";
import type { ArchiveCause, ArchiveReport } from "../context.ts";
import { ARCHIVE_CAUSE, causeOf, createWriteState, UNUSABLE } from "../context.ts";
import { follow } from "../follow/follow.ts";
import { type CopyStart, ensureDatabase, prepareCopy } from "../follow/prepare.ts";
import type { DatabaseFiles, Machine } from "../machine.ts";
import { isUsed } from "../read/catalog.ts";
import { createArchiver } from "../write/archiver.ts";
import type { Continuation } from "../write/generation.ts";
import { probe } from "./probe.ts";

const MAX_WAL_BYTES = 2 ** 30;

export type ArchiveRequest =
  | { readonly type: "open"; readonly path: string; readonly settings: ArchiveSettings }
  /** Call it if `open` has found another server. It ends when this one may write. */
  | { readonly type: "follow"; readonly files: FileDescriptors }
  | { readonly type: "start"; readonly files: FileDescriptors; readonly memory: SharedArrayBuffer }
  | { readonly type: "checkpoint" }
  /** Also ends a request that is waiting. */
  | { readonly type: "close" }
  /** It has no response. */
  | { readonly type: "committed"; readonly ticket: number };

export type ArchiveResponse =
  /** Of `open`: whether the database is a copy. Of `follow`: whether it has all that was acknowledged. Otherwise `false`. */
  | { readonly type: "done"; readonly result: boolean }
  | {
      readonly type: "failed";
      readonly code: ErrorCode | null;
      readonly message: string;
      /** What the server can do about it. */
      readonly cause: ArchiveCause;
    }
  /** The copy had everything that the other server had acknowledged, at this age. */
  | { readonly type: "fresh"; readonly ageMs: number }
  | { readonly type: "confirmed"; readonly ticket: number }
  | { readonly type: "superseded"; readonly reason: string }
  | { readonly type: "state"; readonly state: ArchiveReport }
  | { readonly type: "waiting"; readonly what: string | null }
  | { readonly type: "log"; readonly line: Parameters<ArchiveLog> };

type Request<Type extends ArchiveRequest["type"]> = Extract<ArchiveRequest, { type: Type }>;

interface ServiceOptions {
  readonly machine: Machine;
  readonly openStorage: OpenStorage;
  readonly filesOf: (path: string) => DatabaseFiles;
  readonly respond: (response: ArchiveResponse) => void;
}

/** @returns a function that handles a request. All but `committed` have a response, in their order */
export function createArchiveService({ machine, openStorage, filesOf, respond }: ServiceOptions) {
  const log: ArchiveLog = (...line) => respond({ type: "log", line });
  const stopping = new AbortController();
  const { signal } = stopping;
  let archiver: ReturnType<typeof createArchiver> | null = null;
  let opened: ReturnType<typeof contextOf> | null = null;
  /** The copy, if another server writes to the archive. */
  let copyStart: CopyStart | null = null;
  /** Whether the storage was tried, and can have an archive. */
  let isReached = false;
  let followed: Continuation | null = null;
  let last: Promise<unknown> = Promise.resolve();

  function contextOf({ path, settings }: Request<"open">) {
    const storage = openStorage(settings.url, settings.environment);
    const onWaiting = (what: string | null) => respond({ type: "waiting", what });
    const server = { files: filesOf(path), storage, machine, signal, log, onWaiting };
    isReached = settings.wasReached ?? settings.wasSuperseded;
    // What creates the first object runs alone.
    const tryStorage = async () => {
      if (!isReached) await probe(server);
      isReached = true;
    };
    const create: typeof storage.create = (...given) =>
      tryStorage().then(() => storage.create(...given));
    return { ...settings, ...server, storage: { ...storage, create }, tryStorage };
  }

  async function open(request: Request<"open">): Promise<boolean> {
    const context = contextOf(request);
    opened = context;
    const options = { ...context, storage: withRetries(context.storage, machine) };
    if (context.standby) {
      await context.tryStorage();
      // A server that cannot write takes over nothing.
      context.files.requireWritable();
      copyStart = await prepareCopy(options);
    } else if (context.commit === "sync") {
      // Before the database is opened: a start that fails later copies its WAL to it.
      await isUsed(options.storage);
    }
    if (copyStart === null) await ensureDatabase(options);
    return copyStart !== null;
  }

  async function followOther({ files }: Request<"follow">): Promise<boolean> {
    if (opened === null || copyStart === null) throw new Error("no other server was found");
    const onFresh = (ageMs: number) => respond({ type: "fresh", ageMs });
    const database = opened.files.open(files);
    const end = await follow({ ...opened, database, start: copyStart, onFresh });
    followed = end.continuation;
    return end.hasAll;
  }

  async function start({ files, memory }: Request<"start">): Promise<void> {
    if (opened === null) throw new Error("the archive is not open");
    archiver = createArchiver({
      ...opened,
      database: opened.files.open(files),
      writes: createWriteState(memory),
      maxWalBytes: MAX_WAL_BYTES,
      onConfirmed: (ticket) => respond({ type: "confirmed", ticket }),
      onSuperseded: (reason) => respond({ type: "superseded", reason }),
      onState: (state) => respond({ type: "state", state }),
    });
    await archiver.start(followed);
    if (opened.commit === "sync") await archiver.untilBaseWritten();
  }

  async function close(): Promise<void> {
    stopping.abort(new AppError("operator", "interrupted"));
    await last.catch(() => {});
    await archiver?.close().catch((error: unknown) => {
      log("warn", "archive not complete", { reason: messageOf(error) });
    });
  }

  const handlers: { [Type in ArchiveRequest["type"]]: (_: Request<Type>) => unknown } = {
    open,
    follow: followOther,
    start,
    close,
    checkpoint: () => archiver?.checkpoint(),
    committed: ({ ticket }) => archiver?.committed(ticket),
  };

  return async (request: ArchiveRequest): Promise<void> => {
    try {
      const handled = handlers[request.type](request as never);
      if (handled instanceof Promise) last = handled;
      const result = (await handled) === true;
      if (request.type !== "committed") respond({ type: "done", result });
    } catch (error) {
      const code = error instanceof AppError ? error.code : null;
      const cause = causeOf(error) ?? (isReached ? ARCHIVE_CAUSE : UNUSABLE);
      respond({ type: "failed", code, message: messageOf(error), cause });
    }
  };
}
