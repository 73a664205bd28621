/** Batched updates and deletes. Those of one turn of the event loop share a statement that reads, and one that writes. */
import type { ChangeType } from "../change.ts";
import type { RecordTable } from "../record.ts";
import { columnDefinitions } from "./columns.ts";
import { lookupStatement, type Positioned } from "./lookups.ts";
import { recordStatement } from "./outbox.ts";
import { withLockTimeout } from "./row-locks.ts";
import type { Target, UpdatedTarget, UpdateParts, WriteTargets } from "./update-queue.ts";

interface Versioned {
  readonly id: number;
  readonly version: number;
}

/** @returns a function that reads records by id */
export function prepareRead<Stored extends Versioned>(
  table: RecordTable,
  columns: string,
): UpdateParts<Stored, unknown>["read"] {
  const statement = lookupStatement({ table, key: "id", columns });
  return async (session, ids) => {
    const rows = await session.all<Positioned<Stored>>(statement, JSON.stringify(ids));
    return new Map(
      rows.map(({ position: _, ...stored }) => [stored.id, stored as unknown as Stored]),
    );
  };
}

interface WriteParts {
  readonly table: RecordTable;
  /** The statement without conditions. It reads `input`. */
  readonly write: string;
  /** The columns of `input` with their types, apart from the id, the version and the author. */
  readonly values: Readonly<Record<string, string>>;
  readonly type: ChangeType;
  /** The code of the status of a written row. */
  readonly status: string;
}

/**
 * `$1` is a JSON array of records, and `$2` the lock timeout, `null` for that of the connection. The statement returns the
 * ids of those that it has written. It locks no row before: one that has another version after a wait is not written.
 *
 * Rows are found by an array, because a plan for a join alone may be made while the table is empty, and would read the
 * whole index.
 */
function writeStatement({ table, write, values, type, status }: WriteParts): string {
  const input = { id: "bigint", version: "bigint", author: "text", time: "bigint", ...values };
  return `
    with
      input as materialized (
        select *
        from json_to_recordset($1::text::json)
          as input (${columnDefinitions(input)})
        where ${withLockTimeout("$2")}
      ),
      written as (
        ${write}
        where ${table}.id = any(array(select id from input))
          and ${table}.id = input.id and ${table}.version = input.version
        returning ${table}.id, ${table}.version, ${status} as status, author, time
      ),
      recorded as (${recordStatement({
        type,
        from: "written",
        version: "version",
        status: "status",
        token: "author",
        time: "time",
      })})
    select id
    from written
  `;
}

function prepareWrite<Written extends Target<Versioned> & { readonly values?: object }>(
  parts: WriteParts,
): WriteTargets<Written> {
  const statement = writeStatement(parts);
  return async (session, targets, lockTimeout) => {
    // In one order, so that two batches do not deadlock.
    const ordered = targets.toSorted((one, other) => one.stored.id - other.stored.id);
    const input = ordered.map(({ stored: { id, version }, author, time, values }) => ({
      id,
      version,
      author,
      time: time.getTime(),
      ...values,
    }));
    const rows = await session.all<{ id: number }>(statement, JSON.stringify(input), lockTimeout);
    return rows.map(({ id }) => id);
  };
}

/** @returns a function that changes records. It sets the columns of `values` */
export function prepareUpdate<Stored extends Versioned, Values extends object>(
  parts: Omit<WriteParts, "write">,
): WriteTargets<UpdatedTarget<Stored, Values>> {
  const { table, values } = parts;
  const set = Object.keys(values).map((name) => `${name} = input.${name}`);
  const write = `
    update ${table}
    set ${set.join(", ")}, version = ${table}.version + 1
    from input
  `;
  return prepareWrite({ ...parts, write });
}

/** @returns a function that deletes records */
export function prepareDelete<Stored extends Versioned>(
  parts: Omit<WriteParts, "write" | "values">,
): WriteTargets<Target<Stored>> {
  const write = `delete from ${parts.table} using input`;
  return prepareWrite({ ...parts, write, values: {} });
}
