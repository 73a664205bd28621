/** Copies all rows of a database to another, which gets its name only after it has been verified. */
import type { Database } from "bun:sqlite";
import { fail, systemCode } from "../../base/error.ts";
import { yieldToEventLoop } from "../../base/event-loop.ts";
import { makeTemporaryDatabase } from "../../base/temporary-file.ts";
import * as copy from "../../domain/copy.ts";
import type { Backend } from "../../domain/store.ts";
import { connect, type DatabaseFile } from "../file/connection.ts";
import { describeSqliteError, ioErrorOf, withIoErrors } from "../file/errors.ts";
import { publish, requireAbsent } from "../file/files.ts";
import { migrate } from "../file/migrate.ts";
import { prepareLastId } from "../tables/count-index.ts";
import { verifyDatabase } from "./backup.ts";
import { prepareBulkInsert } from "./bulk-insert.ts";

function copySourceOf(db: Database, requireUnchanged = () => {}): copy.CopySource {
  const lastId = prepareLastId(db);
  return {
    async *read(table) {
      const { columns, sortKey } = copy.copiedTables[table];
      const select = `select ${columns.join(", ")} from ${table} order by ${sortKey.join(", ")}`;
      let batch: copy.CopyRow[] = [];
      for (const row of db.prepare<copy.CopyRow, []>(select).iterate()) {
        batch.push(row);
        if (batch.length < copy.COPY_BATCH_ROWS) continue;
        yield batch;
        batch = [];
        // So that signals are handled and progress is drawn.
        await yieldToEventLoop();
      }
      yield batch;
      requireUnchanged();
    },
    async lastId(table) {
      const id = lastId(table);
      requireUnchanged();
      return id;
    },
  };
}

/** Opens its own connection, because the store's takes a new snapshot in every turn. @see Store.withCopySource */
export async function withCopySource<Result>(
  file: DatabaseFile,
  work: (rows: copy.CopySource) => Promise<Result>,
): Promise<Result> {
  try {
    using db = file.connect();
    const explain = (error: unknown) =>
      describeSqliteError(`Cannot read ${file.path}`, ioErrorOf(error, db));
    db.run("begin");
    const rows = withIoErrors(db, () => copySourceOf(db, file.requireUnchanged));
    return await work(copy.withMappedErrors(rows, explain));
  } catch (error) {
    file.requireUnchanged();
    throw error;
  }
}

const newestChange = (isOfOrder: string, id: string) =>
  `select max(id) from changes where (type > 3) = ${isOfOrder} and record_id = ${id}`;

/** Rows get the columns that other databases do not have (see `history.ts`) while they are the last ones of their tables. */
const linkRows = `
  create index copied_changes on changes (type > 3, record_id);
  create temp trigger link_change after insert on main.changes begin
    update changes
    set previous = (${newestChange("(new.type > 3)", "new.record_id")} and id < new.id)
    where id = new.id;
  end;
  create temp trigger link_user after insert on main.users begin
    update users set last_change = (${newestChange("0", "new.id")}) where id = new.id;
  end;
  create temp trigger link_order after insert on main.orders begin
    update orders set last_change = (${newestChange("1", "new.id")}) where id = new.id;
  end;
`;

function copyTargetOf(db: Database): copy.CopyTarget {
  const { insert, skipTo, finish } = prepareBulkInsert(db)();

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
      db.run("delete from sqlite_sequence where name = ?", [table]);
      db.run("insert into sqlite_sequence (name, seq) values (?, ?)", [table, id]);
    },
  };
}

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
    db.run(linkRows);
    const result = await work(copyTargetOf(db));
    db.run("drop index copied_changes");
    db.run("commit");
    db.close(true);
    verifyDatabase(temporary.path);
    publish(temporary.path, path);
    return result;
  } catch (error) {
    throw describeSqliteError(`Cannot copy to ${path}`, error);
  }
};
