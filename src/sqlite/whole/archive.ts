/** Commands on an archive, without the database of a server. */
import { existsSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { makeTemporaryDatabase } from "../../base/temporary-file.ts";
import { withRetries } from "../../domain/object-storage.ts";
import type { ArchiveCommands } from "../../domain/store.ts";
import { promote } from "../archive/follow/promote.ts";
import { listRanges } from "../archive/read/catalog.ts";
import { holderName } from "../disk/files.ts";
import { restoreToFile } from "../disk/restored-file.ts";
import { systemMachine } from "../disk/system-machine.ts";
import { describeSqliteError } from "../file/errors.ts";
import { verifyDatabase } from "./backup.ts";

export const sqliteArchive: ArchiveCommands = {
  async check(storage, databaseUrl) {
    let directory = dirname(resolve(databaseUrl));
    // A check must not create the directory of the database.
    while (!existsSync(directory)) directory = dirname(directory);
    try {
      // Not the name of the database: a restore in another container, where all have the same process id, may be under way.
      using temporary = makeTemporaryDatabase(join(directory, `${basename(databaseUrl)}-check`));
      const { timeMs, warnings } = await restoreToFile(temporary.path, storage, null);
      return { ...verifyDatabase(temporary.path), archivedUntil: new Date(timeMs), warnings };
    } catch (error) {
      throw describeSqliteError(`Cannot check ${storage.url}`, error);
    }
  },
  list: (storage) =>
    listRanges(withRetries(storage, systemMachine)).catch((error) => {
      throw describeSqliteError(`Cannot read ${storage.url}`, error);
    }),
  promote(storage, ...options) {
    const own = { writer: systemMachine.newId(), holder: holderName("archive promote") };
    return promote(withRetries(storage, systemMachine), ...options, own).catch((error) => {
      throw describeSqliteError(`Cannot promote ${storage.url}`, error);
    });
  },
};
