/** Creates a database from all rows of another. The file gets its name only after it has been verified. */
import type { Database } from "bun:sqlite";
import { fail, systemCode } from "../../base/error.ts";
import { makeTemporaryDatabase } from "../../base/temporary-file.ts";
import type { CopyTarget } from "../../domain/copy.ts";
import type { Backend } from "../../domain/store.ts";
import { connect } from "../file/connection.ts";
import { describeSqliteError } from "../file/errors.ts";
import { publish, requireAbsent } from "../file/files.ts";
import { migrate } from "../file/migrate.ts";
import { verifyDatabase } from "./backup.ts";
import { prepareBulkInsert } from "./bulk-insert.ts";
import { copySourceOf } from "./copy-source.ts";

function copyTargetOf(db: Database): CopyTarget {
  const { insert, skipTo, finish } = prepareBulkInsert(db)();
  const clearLastId = db.prepare<null, { table: string }>(`
    delete from sqlite_sequence
    where name = $table
  `);
  const setLastId = db.prepare<null, { table: string; id: number }>(`
    insert into sqlite_sequence (name, seq)
    values ($table, $id)
  `);

  return {
    ...copySourceOf(db),
    async write(table, rows) {
      try {
        for (const row of rows) insert(table, row);
      } catch (error) {
        // A CHECK that cannot be evaluated, e.g. on malformed JSON, fails with SQLITE_ERROR.
        if (!/^SQLITE_(CONSTRAINT|ERROR)/.test(systemCode(error))) throw error;
        fail("operator", `a row of ${table} is invalid`);
      }
    },
    async advanceIds(table, id) {
      if (table !== "tokens") {
        skipTo(table, id);
        finish();
      }
      clearLastId.run({ table });
      setLastId.run({ table, id });
    },
  };
}

/** @see Backend.withCopyTarget */
export const withSqliteCopyTarget: Backend["withCopyTarget"] = async (path, work) => {
  try {
    requireAbsent(path);
    using temporary = makeTemporaryDatabase(path);
    using db = connect(temporary.path);
    // No process uses the file yet: it is removed if the copy fails, and synced once at the end.
    db.run("pragma journal_mode = off");
    db.run("pragma synchronous = off");
    migrate(db);
    db.run("begin");
    const result = await work(copyTargetOf(db));
    db.run("commit");
    db.close(true);
    verifyDatabase(temporary.path);
    publish(temporary.path, path);
    return result;
  } catch (error) {
    throw describeSqliteError(`Cannot copy to ${path}`, error);
  }
};
