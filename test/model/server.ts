/**
 * The program on a simulated machine: the thread of the archive is that of the program, and that of the server opens,
 * follows, writes and ends as `serve` and `openSqlite` do.
 */
import { AppError, isDiskError, messageOf } from "../../src/base/error.ts";
import type { ArchiveLog, ArchiveOptions, ArchiveSettings } from "../../src/domain/archive.ts";
import type { ObjectStorage } from "../../src/domain/object-storage.ts";
import { ARCHIVE_CAUSE } from "../../src/sqlite/archive/context.ts";
import { followableFrom } from "../../src/sqlite/archive/follow/prepare.ts";
import type { DatabaseFiles, Machine } from "../../src/sqlite/archive/machine.ts";
import { type ArchiveClient, openArchive } from "../../src/sqlite/archive/thread/client.ts";
import { untilOpen } from "../../src/sqlite/archive/thread/reopening.ts";
import type { ArchiveRequest, ArchiveResponse } from "../../src/sqlite/archive/thread/service.ts";
import { createArchiveService } from "../../src/sqlite/archive/thread/service.ts";
import { type Process, startProcess } from "./clock.ts";
import type { Disk } from "./disk.ts";

const FILES = { database: 0, wal: 1, index: 2 };
/** Commits between two checkpoints. */
const CHECKPOINT_COMMITS = 9;
const WATCH_INTERVAL_MS = 1_000;
const HIDING_MS = 4_000;

/** What clients reach. */
export interface Store {
  readonly isCopy: boolean;
  /** Resolves when the word is acknowledged. A word that is there already is not written again. */
  readonly write: (word: string) => Promise<void>;
  readonly words: () => ReadonlySet<string>;
  /** As reads say; `null` if they say nothing. */
  readonly ageMs: () => number | null;
  readonly close: () => Promise<void>;
}

export interface ServerParts {
  readonly process: Process;
  readonly disk: Disk;
  /** @returns the storage as a thread reaches it */
  readonly storageOf: (thread: Process) => ObjectStorage;
  /** @returns the files as the thread of the archive sees them */
  readonly filesOf: (thread: Process) => DatabaseFiles;
  readonly settings: Omit<ArchiveSettings, "wasSuperseded">;
  readonly log: ArchiveLog;
  readonly onStore: (store: Store | null) => void;
  /** Called when it has taken over, and opens the database. */
  readonly onTaken: () => void;
  readonly onWaiting: (what: string | null) => void;
  readonly machineOf: (thread: Process) => Machine;
  /** What a planted fault changes, by name. */
  readonly mutation: Readonly<Record<string, true>>;
}

/** @returns the thread of the archive; messages arrive one after the other, some time later */
function startThread({ process, storageOf, filesOf, machineOf }: ServerParts): Worker {
  const worker = {
    onmessage: (_: { data: ArchiveResponse }) => {},
    onerror: (_: { message: string }) => {},
    ref() {},
    unref() {},
    addEventListener() {},
    postMessage(request: ArchiveRequest) {
      thread.after(0, () => void handle(request));
    },
    terminate: () => thread.end(),
  };
  const onError = (error: unknown) => worker.onerror({ message: messageOf(error) });
  const thread = startProcess(`${process.name}t`, process.host, onError, process);
  const machine = machineOf(thread);
  const handle = createArchiveService({
    machine,
    filesOf: () => filesOf(thread),
    openStorage: () => storageOf(thread),
    respond: (data) => void process.after(0, () => worker.onmessage({ data })),
  });
  return worker as unknown as Worker;
}

/** The database is open, and this server may write to it. */
async function createStore(parts: ServerParts, archive: ArchiveClient): Promise<Store> {
  const { disk, process, machineOf, mutation } = parts;
  const sqlite = disk.server(process);
  const pending = new Set<Promise<void>>();
  let checkpointing: Promise<unknown> | null = null;
  let commits = 0;
  let isClosed = false;

  function checkpoint(): Promise<unknown> {
    checkpointing ??= archive.checkpoint().finally(() => {
      checkpointing = null;
    });
    commits = 0;
    return checkpointing;
  }

  async function commit(text: string, isMeta: boolean): Promise<void> {
    while (checkpointing !== null) await checkpointing.catch(() => {});
    if (isClosed) throw new AppError("unavailable", "the server stops");
    try {
      archive.begin();
      if (isMeta || mutation.repeats || !disk.has(text)) sqlite.commit(text, isMeta);
    } catch (error) {
      archive.failed(isDiskError(error) && !mutation.hidesFailures);
      throw error;
    }
    const confirmation = archive.confirm();
    commits += 1;
    if (commits >= CHECKPOINT_COMMITS) checkpoint().catch(() => {});
    if (!mutation.isEarly) await confirmation;
    else confirmation?.catch(() => {});
  }

  function write(text: string, isMeta = false): Promise<void> {
    const written = commit(text, isMeta);
    pending.add(written);
    written.catch(() => {}).finally(() => pending.delete(written));
    return written;
  }

  async function close(): Promise<void> {
    isClosed = true;
    watching[Symbol.dispose]();
    await Promise.allSettled(pending);
    await archive[Symbol.asyncDispose]();
    sqlite.close();
  }

  const watching = machineOf(process).every(WATCH_INTERVAL_MS, () => {
    if (archive.isDiskFailing()) write(sqlite.name(), true).then(archive.noteDiskWorks, () => {});
    if (commits > 0) checkpoint().catch(() => {});
  });
  try {
    await archive.start(FILES);
    await checkpoint().catch(() => {});
    const isMarked = sqlite.meta() === sqlite.name();
    await write(sqlite.name(), true).catch((error) => {
      if (!isMarked) throw error;
    });
  } catch (error) {
    await close();
    throw error;
  }
  const ageMs = () => {
    const seconds = archive.secondsUnheld();
    return seconds === null ? null : 1000 * seconds;
  };
  return { isCopy: false, write, words: disk.words, ageMs, close };
}

async function serveCopy(
  { disk, process, onStore, onTaken, mutation }: ServerParts,
  archive: ArchiveClient,
) {
  const sqlite = disk.server(process);
  sqlite.open();
  onStore({
    isCopy: true,
    write: () => Promise.reject(new AppError("unavailable", "it is a copy")),
    words: disk.words,
    ageMs() {
      if (mutation.isAgeless) return 0;
      return 1000 * ((archive.secondsBehind() ?? 0) + (mutation.isOld ? 8 : 0));
    },
    close: async () => {},
  });
  if (mutation.hidesCopies) process.after(HIDING_MS, () => onStore(null));
  try {
    await archive.follow(FILES);
    onTaken();
  } finally {
    onStore(null);
    if (archive.isCopy()) await archive[Symbol.asyncDispose]();
    sqlite.close();
  }
}

async function openStore(
  parts: ServerParts,
  options: ArchiveOptions,
  onCreate: () => void,
): Promise<Store> {
  const { process, disk, machineOf, mutation } = parts;
  const sqlite = disk.server(process);
  if (disk.hasOrphan()) throw new AppError("operator", "the file is missing but its WAL exists");
  if (mutation.opensFirst && disk.exists()) {
    sqlite.open();
    sqlite.close();
  }
  const archive = await openArchive(disk.files(process).path, options, machineOf(process));
  try {
    if (archive.isCopy()) await serveCopy(parts, archive);
    if (!disk.exists()) {
      onCreate();
      sqlite.create();
    }
    sqlite.open();
  } catch (error) {
    await archive[Symbol.asyncDispose]();
    throw error;
  }
  return await createStore(parts, archive);
}

/** As `openOrReplace` of the backend. */
function openOrReplace(parts: ServerParts, options: ArchiveOptions): Promise<Store> {
  const { disk, process, mutation, machineOf } = parts;
  const sqlite = disk.server(process);
  let isNew = false;
  const open = (attempt: ArchiveOptions): Promise<Store> =>
    openStore(parts, attempt, () => {
      isNew = true;
    }).catch((error) => {
      const isFinal = mutation.givesUp && error.cause === ARCHIVE_CAUSE;
      throw isFinal ? new Error(messageOf(error)) : error;
    });
  return untilOpen(options, machineOf(process), open, (reason) => {
    if (mutation.keepsDiverged || (mutation.keepsNew && isNew))
      throw new AppError("operator", reason);
    if (options.standby && followableFrom(disk.files(process)) !== null) return;
    if (isNew) sqlite.discard();
    else {
      sqlite.open();
      sqlite.close();
      sqlite.setAside();
    }
    options.onLog("warn", isNew ? "empty database deleted" : "database set aside", { reason });
    isNew = false;
  });
}

/**
 * Serves until it is stopped, or an error ends it.
 * @param stopping is aborted to stop it
 * @throws what ends the program with exit code 1
 */
export async function serve(parts: ServerParts, stopping: AbortSignal): Promise<void> {
  const { settings, log, onWaiting, mutation } = parts;
  const fault = Promise.withResolvers<never>();
  fault.promise.catch(() => {});
  const stopped = new Promise<"stopped">((resolve) => {
    stopping.addEventListener("abort", () => resolve("stopped"));
  });
  for (let wasSuperseded = false; ; wasSuperseded = true) {
    const superseded = Promise.withResolvers<"superseded">();
    const store = await openOrReplace(parts, {
      ...settings,
      wasSuperseded,
      signal: stopping,
      createWorker: () => startThread(parts),
      onLog: log,
      onWaiting: mutation.isMute ? () => {} : onWaiting,
      onStopped: fault.reject,
      onSuperseded: (error) =>
        settings.standby ? superseded.resolve("superseded") : fault.reject(error),
    }).catch((error) => {
      if (!stopping.aborted) throw error;
      return null;
    });
    parts.onStore(store);
    try {
      const end =
        store === null
          ? "stopped"
          : await Promise.race([stopped, superseded.promise, fault.promise]);
      if (end === "stopped") return;
    } finally {
      parts.onStore(null);
      // On a disk that fails.
      await store?.close().catch((error) => {
        if (!settings.standby) throw error;
      });
    }
  }
}
