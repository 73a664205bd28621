/** Decides what a server does that has an archive and no database. */
import { existsSync, lstatSync, rmSync, statSync } from "node:fs";
import { AppError, fail, shellWord } from "../../base/error.ts";
import { makeTemporaryDatabase } from "../../base/temporary-file.ts";
import type { ArchiveSettings } from "../../domain/archive.ts";
import { meaningOf } from "../file/errors.ts";
import { discard, makeParents, publish, requireAbsent } from "../file/files.ts";
import { type Catalog, isUsed, NO_BASE, readCatalog, readEnd, requireNewest } from "./catalog.ts";
import type { ServerContext } from "./context.ts";
import { seal } from "./log.ts";
import { notTheArchive, readMarker, settleMarker } from "./marker.ts";
import { markRestored, type Restored, restoreTo } from "./rebuild.ts";
import { untilStill } from "./still.ts";

/** The storage repeats calls that fail. */
export interface EnsureOptions extends ServerContext, Pick<ArchiveSettings, "restore"> {
  /** @throws {AppError} operator if the database is damaged */
  readonly verify: (path: string) => void;
}

/** Restores the newest state to a path with no file, or an empty one, or in the place of the copy of a standby. */
export async function restoreNewest({
  path,
  storage,
  verify,
  log,
}: EnsureOptions): Promise<Restored> {
  makeParents(path);
  // Asked again, because another server may have been waited for. Not a symbolic link, which would become a file.
  const file = lstatSync(path, { throwIfNoEntry: false });
  if (file?.isFile() && file.size === 0) rmSync(path);
  const isCopy = readMarker(path)?.isCopy === true;
  if (!isCopy) requireAbsent(path);
  try {
    using temporary = makeTemporaryDatabase(path);
    const restored = await restoreTo(temporary.path, storage, null);
    verify(temporary.path);
    markRestored(path, restored, true, temporary.path);
    // Not before: it may be the only one that is left.
    if (isCopy) discard(path);
    publish(temporary.path, path);
    settleMarker(path);
    for (const reason of restored.warnings) log("warn", "archive needs attention", { reason });
    const until = new Date(restored.timeMs).toISOString();
    log("info", "archive restored", { storage: storage.url, until });
    return restored;
  } catch (error) {
    const problem = error instanceof AppError ? null : meaningOf(error);
    throw problem === null ? error : new AppError("operator", `cannot restore ${path}: ${problem}`);
  }
}

/** Waits until no server writes to the newest log, and seals it, so that none can add to what is restored. */
async function sealNewest(
  { storage, holder, clock, nowMs, signal, log }: EnsureOptions,
  catalog: Catalog,
): Promise<void> {
  const newest = requireNewest(catalog);
  const { tail } = await readEnd(storage, catalog);
  if (tail === null || tail.isSealed) return;
  log("info", "waiting for the archive", { holder: newest?.holder ?? "" });
  await untilStill(storage, tail.sealFrom, clock, signal);
  await seal(storage, tail.sealFrom, { writer: crypto.randomUUID(), holder }, nowMs());
}

/**
 * Restores a missing database from its archive, or refuses to create an empty one instead, also if the archive has no base
 * yet or any more.
 * @throws {AppError} operator if the database is missing, and must not be restored or cannot be
 * @throws {AppError} unavailable if the database is missing and the storage is unreachable
 * @throws the reason of the signal
 */
export async function ensureDatabase(options: EnsureOptions): Promise<void> {
  const { path, storage, restore } = options;
  if (existsSync(path) && statSync(path).size > 0) return;
  if (!(await isUsed(storage))) {
    if ((readMarker(path)?.archive ?? null) !== null) fail("operator", notTheArchive(path));
    return;
  }
  const catalog = await readCatalog(storage);
  if (catalog.bases.length === 0)
    fail("operator", `${NO_BASE}: put back what was deleted, or choose another ARCHIVE_URL`);
  if (restore === "never") {
    const command = `user-api restore --from ${shellWord(storage.url)} --database-url ${shellWord(path)}`;
    const advice = `run \`${command}\`, or set ARCHIVE_RESTORE=if-missing`;
    fail("operator", `it has a database, but ${path} is missing: ${advice}`);
  }
  await sealNewest(options, catalog);
  await restoreNewest(options);
}
