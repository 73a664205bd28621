/** Decides what a server does that has an archive and no database. */

import { AppError, fail, shellWord } from "../../../base/error.ts";
import type { ArchiveSettings } from "../../../domain/archive.ts";
import { meaningOf } from "../../file/errors.ts";
import { type ServerContext, UNUSABLE } from "../context.ts";
import {
  areVoid,
  type Catalog,
  isUsed,
  NO_BASE,
  readCatalog,
  readEnd,
  requireNewest,
} from "../read/catalog.ts";
import { markerOfRestored, type Restored, restoreTo } from "../read/rebuild.ts";
import { untilStill } from "../read/still.ts";
import { seal } from "../write/log.ts";

/** The storage repeats calls that fail. */
export type EnsureOptions = ServerContext &
  Pick<ArchiveSettings, "restore" | "standby" | "takeoverMs" | "wasSuperseded">;

/** Restores the newest state where there is no database, or an empty one, or in the place of the copy of a standby. */
export async function restoreNewest(options: EnsureOptions): Promise<Restored> {
  const { files, machine, storage, log } = options;
  const { path } = files;
  try {
    using file = files.beginRestore();
    const restored = await restoreTo(file, machine, storage, null);
    file.verify();
    file.publish((state) => markerOfRestored(restored, true, state));
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
  { storage, files, machine, signal, log, standby }: EnsureOptions,
  catalog: Catalog,
): Promise<void> {
  const newest = requireNewest(catalog);
  const { tail } = await readEnd(storage, catalog);
  if (tail === null || tail.isSealed) return;
  // It has begun since this one has looked for it.
  if (standby) fail("unavailable", "waiting for another server, which has begun the archive");
  log("info", "waiting for the archive", { holder: newest?.holder ?? "" });
  await untilStill(storage, tail.sealFrom, machine, signal);
  const sealer = { writer: machine.newId(), holder: files.holder };
  await seal(storage, tail.sealFrom, sealer, machine.nowMs());
}

/**
 * Restores a missing database from its archive, or refuses to create an empty one instead, also if the archive has no base
 * yet or any more.
 * @throws {AppError} operator if the database is missing, and must not be restored or cannot be
 * @throws {AppError} unavailable if the database is missing and the storage is unreachable
 * @throws the reason of the signal
 */
export async function ensureDatabase(options: EnsureOptions): Promise<void> {
  const { files, storage, restore, standby } = options;
  const { path } = files;
  if (files.bytes() > 0) return;
  if (!(await isUsed(storage))) {
    if ((files.readMarker()?.archive ?? null) !== null)
      throw new AppError("operator", files.notTheArchive, { cause: UNUSABLE });
    return;
  }
  const catalog = await readCatalog(storage);
  if (catalog.bases.length === 0) {
    // A standby has waited, and sealed the log.
    if (standby && catalog.newest > 0 && (await areVoid(storage, 0, catalog.newest))) return;
    fail("operator", `${NO_BASE}: put back what was deleted, or choose another ARCHIVE_URL`);
  }
  if (restore === "never") {
    const command = `user-api restore --from ${shellWord(storage.url)} --database-url ${shellWord(path)}`;
    const advice = `run \`${command}\`, or set ARCHIVE_RESTORE=if-missing`;
    fail("operator", `it has a database, but ${path} is missing: ${advice}`);
  }
  await sealNewest(options, catalog);
  await restoreNewest(options);
}
