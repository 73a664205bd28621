import type { Database } from "bun:sqlite";
import { existsSync } from "node:fs";
import { createTimestamp, systemClock } from "../base/clock.ts";
import { suffixes } from "../base/database-url.ts";
import { messageOf } from "../base/error.ts";
import { createWriteProbe } from "../base/write-probe.ts";
import type { OnCommit, Store, StoreOptions } from "../domain/store.ts";
import type { ArchiveClient } from "./archive/thread/client.ts";
import { createChangeWatch } from "./engine/change-watch.ts";
import { createReader, type Reader } from "./engine/reader.ts";
import { createWriteBatch } from "./engine/write-batch.ts";
import { createWriter, type Writer } from "./engine/writer.ts";
import { createCheckpointer } from "./file/checkpoint.ts";
import type { DatabaseFile } from "./file/connection.ts";
import { type FileDescriptors, watchFiles } from "./file/file-watch.ts";
import { freeBytesOf, readHeader, sizeOf } from "./file/files.ts";
import { lockPath, type ServerLock } from "./file/server-lock.ts";
import { createChangeStore, prepareNoteChange } from "./tables/changes.ts";
import { continueFeed } from "./tables/feed.ts";
import { createIdempotencyStore } from "./tables/idempotency.ts";
import { createOrderStore } from "./tables/orders.ts";
import { createSums } from "./tables/sums.ts";
import { createTokenStore } from "./tables/tokens.ts";
import { createUserStore } from "./tables/users.ts";
import { lastBackupS } from "./whole/backup.ts";
import { findChange, NO_CHECKSUM } from "./whole/backup-checksum.ts";
import { checkDatabase } from "./whole/check.ts";
import { withCopySource } from "./whole/copy.ts";
import { createBulkStores } from "./whole/import.ts";

/** Interval of the file check when there are no writes. */
const WATCH_INTERVAL_MS = 1_000;
/** Interval at which a server marks its file: a copy of the file that is older than this is recognized. */
const MARK_INTERVAL_MS = 10 * 60 * 1000;

/** A record of this length makes the probe write six pages. A create writes three to eight. */
const PROBE_LENGTH = 16_000;

/** Writes as many pages as a request, because a nearly full disk would otherwise seem healthy. It leaves no row. */
function preparePageWrite(db: Database, writer: Writer): () => Promise<void> {
  const insert = db.prepare<null, { record: string }>(`
    insert into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ('', 'probe', '', $record, '')
  `);
  const remove = db.prepare("delete from idempotency_keys where owner = '' and key = 'probe'");
  const record = JSON.stringify({ filler: "x".repeat(PROBE_LENGTH) });
  const write = () => {
    insert.run({ record });
    remove.run();
  };
  return () => writer.write("idempotency_keys", write);
}

/** Checkpoints the WAL: its file may have been moved or deleted, and then its writes would be lost at exit. */
function checkpointWal(db: Database, reader: Reader): void {
  reader.reset();
  try {
    db.run("pragma wal_checkpoint(passive)");
  } catch {
    // The disk is failing, or another connection reads an older state. Closing the database tries again.
  }
}

interface OpenDatabase {
  readonly db: Database;
  readonly file: DatabaseFile;
  /** `null` if the store is not that of a server. */
  readonly lock: ServerLock | null;
  readonly archive: ArchiveClient | null;
  readonly copy?: {
    readonly archive: ArchiveClient;
    readonly onOpen: (files: FileDescriptors) => void;
  };
}

async function check({ db, file }: OpenDatabase, reader: Reader, { onWarning }: StoreOptions) {
  const { path, atRest } = file;
  const problems = reader.read("sqlite_schema", () => checkDatabase(db, atRest));
  // Only a file at rest is opened again: closing it would release the locks of SQLite.
  const isBackup = atRest && readHeader(path)?.usesWal === false && !existsSync(lockPath(path));
  if (!isBackup) return problems;
  const problem = await findChange(path);
  if (problem === null) return problems;
  if (problem !== NO_CHECKSUM) return [problem, ...problems];
  if (problems.length === 0) onWarning?.(`${path}: ${problem}`);
  return problems;
}

/** @param opened closes the database. Closing the store disposes of it */
export async function createStore(
  database: OpenDatabase,
  options: StoreOptions,
  opened: AsyncDisposableStack,
): Promise<Store> {
  const { db, file, lock, archive, copy } = database;
  const { path } = file;
  const { mode, now } = options;
  const secondsBehind = () =>
    copy === undefined ? (archive?.secondsUnheld() ?? null) : copy.archive.secondsBehind();
  const onProblem = (problem: string | null, isOverwritten: boolean) => {
    options.onStorageProblem?.(problem);
    // The WAL would damage a file that was overwritten.
    if (problem !== null && !isOverwritten && !copy) checkpointWal(db, reader);
  };
  await using resources = new AsyncDisposableStack();
  const files = file.atRest ? null : watchFiles(path, onProblem, lock, copy !== undefined);
  if (files !== null) copy?.onOpen(files.descriptors);
  resources.defer(() => files?.close());
  resources.use(opened.move());
  const reader = createReader(db, file.requireUnchanged);
  const checkpointer = createCheckpointer(db, files, archive);
  resources.defer(checkpointer.close);
  // While the files are open.
  resources.use(archive);
  // Before anything is written.
  if (files !== null) await archive?.start(files.descriptors);
  const untilArchived = options.archive?.commit === "sync" ? archive?.untilArchived : null;
  const watch = resources.use(createChangeWatch(db, untilArchived ?? null));
  const onCommit: OnCommit = (writes, durationMs) => {
    options.onCommit?.(writes, durationMs);
    watch.check();
  };
  const batch = createWriteBatch(db, files);
  const writer = createWriter({ batch, reader, checkpointer, onCommit, gate: archive });
  const timestamp = createTimestamp(now);
  const idempotency = createIdempotencyStore(db, writer, timestamp);
  const context = {
    ...{ db, reader, writer, idempotency, timestamp },
    noteChange: prepareNoteChange(db, now),
  };
  // They fail here if the schema is damaged: their statements do not match it.
  const stores = {
    users: createUserStore(context),
    orders: createOrderStore(context),
    tokens: createTokenStore(context),
    changes: createChangeStore(context, watch, () => secondsBehind() !== null),
    bulk: createBulkStores(context),
    deleteExpiredKeys: idempotency.deleteExpired,
    replaceResults: idempotency.replaceOfUser,
  };
  const sums = createSums(file, () => files?.walPages().uncopied ?? 0);
  resources.defer(sums.close);
  const writePages = preparePageWrite(db, writer);
  const probe = createWriteProbe(writePages);
  resources.defer(async () => {
    await writer.idle();
    reader.reset();
  });
  // Disposed of first: their writes would come after the archive is closed.
  resources.use(
    systemClock.every(WATCH_INTERVAL_MS, () => {
      const isInPlace = files?.isInPlace();
      if (archive?.isDiskFailing()) writePages().then(archive.noteDiskWorks, () => {});
      // Also of what others have written, or kept from being copied while they read.
      if (isInPlace && (archive !== null || (mode === "serve" && copy === undefined)))
        writer.checkpoint();
    }),
  );
  if (mode === "serve" || mode === "serve-read-only") await sums.start();
  if (mode === "serve") {
    await checkpointer.prepare();
    const mark = (keepsName = false) =>
      continueFeed(db, path, (work) => writer.write("feed", work), keepsName);
    await mark(archive?.hasAll());
    const problem = `${path} cannot be marked, so a copy of it may continue its feed`;
    // The next one tries again.
    const warn = (error: unknown) => options.onWarning?.(`${problem}: ${messageOf(error)}`);
    resources.use(systemClock.every(MARK_INTERVAL_MS, () => mark().catch(warn)));
  }
  const cleanup = resources.move();
  return {
    ...stores,
    sumOrders: sums.sumOrders,
    async checkUsable() {
      files?.requireInPlace();
      if (mode !== "serve-read-only") await probe();
    },
    statistics: async () => ({
      pendingWrites: writer.pending(),
      databaseBytes: sizeOf(path),
      walBytes: sizeOf(path + suffixes.wal),
      freeBytes: freeBytesOf(path),
      lastBackupS: lastBackupS(path),
    }),
    archive: () => archive?.state() ?? null,
    isPrimary: () => mode === "serve" && archive?.state().isHeld !== false,
    secondsBehind,
    withCopySource: (work) => withCopySource(file, work),
    check: () => check(database, reader, options),
    close: () => cleanup.disposeAsync(),
  };
}
