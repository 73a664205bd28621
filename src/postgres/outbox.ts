/**
 * The outbox has the changes that have no id yet. A write inserts its change in its own transaction, so the outbox has
 * it exactly if the write is committed. @see numbering.ts
 */
import { type ChangedRecord, type ChangeType, changeCodeOf, changeOf } from "../change.ts";
import { orderStatuses } from "../order.ts";
import type { Author } from "../record.ts";
import type { Session } from "./connection.ts";

export const outboxColumns = "type, record_id, version, status, token, created_at";

/** Changes with their ids, and those of the outbox with the ids that they would get now. */
export const allChanges = `
  select id, ${outboxColumns}
  from changes
  union all
  select
    coalesce((select max(id) from changes), 0) + row_number() over (order by xid, record_id, version),
    ${outboxColumns}
  from change_outbox
`;

/** @returns an expression for the code of a status */
export function statusCodeOf(status: string): string {
  return `array_position(array['${orderStatuses.join("', '")}'], ${status})`;
}

export const statusCode: string = statusCodeOf("status");
export const noStatus = "null::smallint";

interface RecordedRows {
  readonly type: ChangeType;
  /** The rows whose changes are recorded, e.g. a CTE. They have an `id`, and what the expressions need. */
  readonly from: string;
  readonly version: string;
  /** `statusCode` or `noStatus`. */
  readonly status: string;
  readonly token: string;
  /** In milliseconds since the Unix epoch. */
  readonly time: string;
}

/**
 * Renders a statement that records a change of each row. As a CTE of the statement that writes the rows, it costs less
 * than a trigger or another statement. Its parameters are expressions.
 */
export function recordStatement(rows: RecordedRows): string {
  const { type, from, version, status, token, time } = rows;
  return `
    insert into change_outbox (${outboxColumns})
    select ${changeCodeOf(type)}, id, ${version}, ${status}, ${token}::text, ${time}::bigint
    from ${from}
  `;
}

/** `$1` is a JSON array of changes without their time, and `$2` the time. */
const insertChanges = `
  insert into change_outbox (${outboxColumns})
  select type, record_id, version, status, token, $2::bigint
  from json_to_recordset($1::text::json) as change (
    type smallint, record_id bigint, version bigint, status smallint, token text
  )
`;

/** A new record, and who has created it. */
export interface Created<Row> {
  readonly record: Row;
  readonly author: Author;
}

/** Records the changes of records that the transaction of the session has created. */
export type RecordCreated = <Row extends ChangedRecord & { readonly user_id?: number }>(
  session: Session,
  type: ChangeType,
  created: readonly Created<Row>[],
  time: Date,
) => Promise<void>;

export const recordCreated: RecordCreated = async (session, type, created, time) => {
  if (created.length === 0) return;
  const changes = created.map(({ record, author }) => changeOf(type, record, author));
  await session.all(insertChanges, JSON.stringify(changes), time.getTime());
};
