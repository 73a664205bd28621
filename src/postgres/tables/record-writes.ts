/** The statements that change and delete records, of requests and of imports, with their changes of the feed. */
import { type ChangeType, changeCodeOf } from "../../domain/change.ts";
import { columnNames } from "../../domain/columns.ts";
import { Order } from "../../domain/order.ts";
import type { Author, RecordTable } from "../../domain/record.ts";
import type { Session } from "../server/connection.ts";
import { oneServer, type Placement } from "../server/placement.ts";
import { type ColumnTypes, inputRows } from "./columns.ts";
import { statusCodeOf } from "./outbox.ts";

export interface Stored {
  readonly id: number;
  readonly version: number;
  readonly updated_at: string;
  /** Of an order. */
  readonly user_id?: number;
  readonly reference?: string | null;
  readonly status?: string;
}

/** A record that is written if it still has the version that was read. */
export interface RecordWrite {
  readonly before: Stored;
  readonly values: object & Pick<Stored, "user_id" | "reference">;
  readonly author: Author;
  /** Those of an update, as `changedFields` returns them; `null` for a deletion. */
  readonly fields: number | null;
}

/** @returns the ids of those that had the version, and were written */
export type WriteRecords = (
  session: Session,
  writes: readonly RecordWrite[],
  time: Date,
) => Promise<ReadonlySet<number>>;

export interface EditableTable<Edit> {
  readonly table: RecordTable;
  readonly columns: ColumnTypes;
  readonly valuesOf: (edit: Edit) => RecordWrite["values"];
  readonly updated: ChangeType;
}

const inputColumns = {
  id: "bigint",
  version: "bigint",
  author: "text",
  time: "bigint",
  status_before: "text",
  fields: "smallint",
};

interface StatementParts {
  readonly table: RecordTable;
  readonly type: ChangeType;
  readonly write: string;
  readonly values: ColumnTypes;
  readonly also?: string;
}

/**
 * `$1` is a JSON array of records, `$2` an array of their ids, `$3` one of their users. The statement returns the ids of those
 * that it has written. It locks no row before: one that has another version after a wait is not written.
 */
function prepareWrite(placement: Placement, parts: StatementParts): WriteRecords {
  const { table, type, values, also } = parts;
  const version = type === "user.deleted" ? "input.version" : "input.version + 1";
  const { ofUsers } = table === "orders" ? placement : oneServer;
  const status = "status" in values ? statusCodeOf("input.status") : "null";
  const statement = `
    with
      input as materialized (
        select *
        from ${inputRows({ ...inputColumns, ...values })}
      ),
      written as (
        ${parts.write}
        where ${table}.id = any($2::bigint[])
          and ${ofUsers}
          and ${table}.id = input.id
          and ${table}.version = input.version
        returning ${table}.${also === undefined ? "id" : "*"}
      ),
      ${also === undefined ? "" : `${also},`}
      noted as (
        insert into change_outbox (
          type, record_id, version, status, status_before, token, created_at, fields
        )
        select
          ${changeCodeOf(type)}, written.id, ${version}, ${status}::smallint,
          ${statusCodeOf("status_before")}::smallint, author, time, fields
        from written
        join input on input.id = written.id
      )
    select id
    from written
  `;
  return async (session, writes, time) => {
    if (writes.length === 0) return new Set();
    // In one order, so that two batches do not deadlock.
    const ordered = writes.toSorted((one, other) => one.before.id - other.before.id);
    const input = ordered.map(({ before, values: set, author, fields }) => ({
      // Of an import, it has all fields.
      ...set,
      id: before.id,
      version: before.version,
      author,
      time: time.getTime(),
      status_before: before.status,
      fields,
    }));
    const ids = ordered.map(({ before }) => before.id);
    const users = ordered.flatMap(({ before }) => before.user_id ?? []);
    const rows = await session.all<{ id: number }>(statement, JSON.stringify(input), ids, users);
    return new Set(rows.map(({ id }) => id));
  };
}

function insertMoved(values: ColumnTypes): string {
  const columns = columnNames(Order);
  const moved = columns.map((name) => `${name in values ? "input" : "written"}.${name}`);
  return `
      moved as (
        insert into orders (${columns.join(", ")})
        select ${moved.join(", ").replace("written.version", "written.version + 1")}
        from written
        join input on input.id = written.id
      )
  `;
}

export function prepareUpdate<Edit>(
  placement: Placement,
  { table, columns, updated: type }: EditableTable<Edit>,
): WriteRecords {
  const values = { ...columns, updated_at: "text" };
  const index = table === "orders" ? placement.updateIndex : null;
  const set = Object.keys(values)
    .filter((name) => index === null || name !== "user_id")
    .map((name) => `${name} = input.${name}`);
  const write = `
        update ${table}
        set ${set.join(", ")}, version = ${table}.version + 1
        from input
  `;
  const update = prepareWrite(placement, { table, type, values, write });
  if (index === null) return update;
  const move = prepareWrite(placement, {
    table,
    type,
    values,
    write: "delete from orders using input",
    also: `${insertMoved(values)}, ${index}`,
  });
  return async (session, writes, time) => {
    const isMoved = ({ before, values: { user_id, reference } }: RecordWrite) =>
      before.user_id !== user_id || before.reference !== reference;
    const kept = writes.filter((each) => !isMoved(each));
    const updated = await update(session, kept, time);
    return updated.union(await move(session, writes.filter(isMoved), time));
  };
}

/** By a separate statement, which sees what others have stored while the delete waited for them. */
const forgetUsers = "delete from idempotency_keys where user_id = any($1::bigint[])";

/** @returns a function that deletes users, and what keys have of them. It must run in a transaction */
export function prepareRemoveUsers(placement: Placement): WriteRecords {
  const remove = prepareWrite(placement, {
    table: "users",
    type: "user.deleted",
    write: "delete from users using input",
    values: {},
  });
  return async (session, writes, time) => {
    const removed = await remove(session, writes, time);
    await session.all(forgetUsers, [...removed]);
    return removed;
  };
}
