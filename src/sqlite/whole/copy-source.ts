/** Reads all rows of a database from one snapshot while other connections write. */
import type { Database } from "bun:sqlite";
import { yieldToEventLoop } from "../../base/event-loop.ts";
import {
  COPY_BATCH_ROWS,
  type CopyRow,
  type CopySource,
  copiedTables,
  withMappedErrors,
} from "../../domain/copy.ts";
import type { DatabaseFile } from "../file/at-rest.ts";
import { describeSqliteError, ioErrorOf, withIoErrors } from "../file/errors.ts";
import { prepareLastId } from "../tables/count-index.ts";

/** Yields to the event loop after each batch, so that signals are handled and progress is drawn. */
async function* inBatches(rows: Iterable<CopyRow>): AsyncGenerator<readonly CopyRow[]> {
  let batch: CopyRow[] = [];
  for (const row of rows) {
    batch.push(row);
    if (batch.length < COPY_BATCH_ROWS) continue;
    yield batch;
    await yieldToEventLoop();
    batch = [];
  }
  yield batch;
}

/** @returns the rows as this connection sees them. @param requireUnchanged called before what was read is used */
export function copySourceOf(db: Database, requireUnchanged = () => {}): CopySource {
  const lastId = prepareLastId(db);
  return {
    async *read(table) {
      const { columns, sortKey } = copiedTables[table];
      const select = `select ${columns.join(", ")} from ${table} order by ${sortKey.join(", ")}`;
      yield* inBatches(db.prepare<CopyRow, []>(select).iterate());
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
  work: (rows: CopySource) => Promise<Result>,
): Promise<Result> {
  try {
    using db = file.connect();
    const explain = (error: unknown) =>
      describeSqliteError(`Cannot read ${file.path}`, ioErrorOf(error, db));
    db.run("begin");
    const rows = withIoErrors(db, () => copySourceOf(db, file.requireUnchanged));
    return await work(withMappedErrors(rows, explain));
  } catch (error) {
    file.requireUnchanged();
    throw error;
  }
}
