/**
 * Batched creates. Records that are created in one turn of the event loop, or while others are being created, share
 * one statement and therefore one commit.
 */
import type { ChangeType } from "../change.ts";
import type { RecordTable, RecordText } from "../record.ts";
import { byPosition, itemAt } from "./batch.ts";
import { columnDefinitions } from "./columns.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import {
  type Create,
  type CreateRules,
  createCreateQueue,
  type Outcome,
  type PendingCreate,
} from "./create-queue.ts";
import { isConstraintViolation, isRolledBack, isStatementError } from "./errors.ts";
import { expiryTime } from "./idempotency.ts";
import { recordStatement } from "./outbox.ts";
import { withLockTimeout } from "./row-locks.ts";

interface CreateStatementParts {
  readonly table: RecordTable;
  /** Columns that a create sets, with their types, apart from the id, the version and the times. */
  readonly columns: Readonly<Record<string, string>>;
  /** A condition on the row `input`: the record cannot be created. It may read rows by a unique column only. */
  readonly rejected: string;
  /** The change that records it. */
  readonly created: ChangeType;
  /** The code of the status of the record. */
  readonly status: string;
  /** The record as JSON, from the columns of its table. */
  readonly json: string;
  /** The order of the inserts, which is the order of their locks. */
  readonly order: string;
}

/** A CTE that claims the keys: a create whose key another transaction has claimed is not in `claimed`. */
function claimKeys(json: string): string {
  return `
      claimed as (
        insert into idempotency_keys (owner, key, fingerprint, record, created_at)
        select owner, key, fingerprint, ${json}, created_at
        from planned
        where key is not null and id is not null
        order by key collate "C", owner collate "C"
        on conflict (owner, key) do update
        set fingerprint = excluded.fingerprint, record = excluded.record, created_at = excluded.created_at
        where idempotency_keys.created_at <= $5
        returning owner, key
      ),
  `;
}

/** Reads what is stored with the key of the row `input`. */
const storedKey = `
          left join lateral (
            select fingerprint as stored_fingerprint, record as stored_record, created_at
            from idempotency_keys
            where idempotency_keys.owner = input.owner and idempotency_keys.key = input.key
            limit 1
          ) as stored on stored.created_at > $5
`;
const noStoredKey = `
          cross join (select null::text as stored_fingerprint, null::text as stored_record) as stored
`;

/**
 * Parameters of the statement: the creates as a JSON array, their time, the lock timeout, `null` for that of the
 * connection, the time in milliseconds, and, if creates have keys, the time at or before which expired keys were stored.
 * It returns a `CreatedRow` for each create.
 *
 * The statement waits for locks only in this order: keys, unique columns and foreign keys. So two batches cannot deadlock.
 * Rows are read by subqueries, each with conditions on one unique index only: the plan may be made while the tables are
 * empty, when any other plan seems equally cheap.
 *
 * Each `materialized` copies all rows, so there are no more than needed. `offset 0` has subqueries evaluated once.
 * @param hasKeys whether any of the creates has a key; a statement without the steps for keys is cheaper
 */
function createStatement(parts: CreateStatementParts, hasKeys: boolean): string {
  const { table, rejected, created, status, json, order } = parts;
  const columns = Object.keys(parts.columns).join(", ");
  const input = {
    ...parts.columns,
    author: "text",
    ...(hasKeys && { owner: "text", key: "text", fingerprint: "text" }),
  };
  const inputNames = Object.keys(input).join(", ");
  const isCreated = hasKeys
    ? "id is not null and (key is null or (owner, key) in (select owner, key from claimed))"
    : "id is not null";
  return `
    with
      planned as materialized (
        select
          found.*, 1 as version, $2::text as created_at, $2::text as updated_at,
          case
            when stored_fingerprint is null and not rejected then nextval('${table}_id_seq')
          end as id
        from (
          select input.*, stored_fingerprint, stored_record, ${rejected} as rejected
          from rows from (json_to_recordset($1::text::json) as (${columnDefinitions(input)}))
            with ordinality as input (${inputNames}, position)
          ${hasKeys ? storedKey : noStoredKey}
          where ${withLockTimeout("$3")}
          offset 0
        ) as found
      ),
      ${hasKeys ? claimKeys(json) : ""}
      decided as ${hasKeys ? "materialized" : "not materialized"} (
        select planned.*, ${isCreated} as is_created
        from planned
      ),
      inserted as (
        insert into ${table} (id, ${columns}, version, created_at, updated_at)
        select id, ${columns}, version, created_at, updated_at
        from decided
        where is_created
        order by ${order}
      ),
      recorded as (${recordStatement({
        type: created,
        from: "decided where is_created",
        version: "1",
        status,
        token: "author",
        time: "$4",
      })})
    select
      position::integer as position, id, is_created, rejected as is_rejected,
      stored_fingerprint, stored_record
    from decided
  `;
}

interface CreatedRow {
  readonly position: number;
  readonly id: number | null;
  readonly is_created: boolean;
  readonly is_rejected: boolean;
  /** Fingerprint and record stored with the key; `null` if the key is new. */
  readonly stored_fingerprint: string | null;
  readonly stored_record: string | null;
}

/** How records of one table are created. The fields are the values of its columns. */
export interface CreateParts<Fields, Row> extends CreateStatementParts, CreateRules<Fields> {
  readonly newRecord: (id: number, fields: Fields, time: string) => RecordText<Row>;
}

/** @returns a function that creates records of one table */
export function prepareCreate<Fields extends object, Row>(
  context: StoreContext,
  parts: CreateParts<Fields, Row>,
): Create<Fields, Row> {
  const { db, now } = context;
  const withKeys = createStatement(parts, true);
  const withoutKeys = createStatement(parts, false);

  function outcomeOf(
    row: CreatedRow,
    { fields }: PendingCreate<Fields>,
    time: string,
  ): Outcome<Row> {
    const { id, is_created, is_rejected, stored_fingerprint, stored_record } = row;
    if (stored_fingerprint !== null && stored_record !== null) {
      return { kind: "stored", fingerprint: stored_fingerprint, record: stored_record };
    }
    if (is_rejected) return { kind: "rejected" };
    if (!is_created) return { kind: "conflict" };
    return { kind: "created", record: parts.newRecord(Number(id), fields, time) };
  }

  return createCreateQueue(context, {
    ...parts,
    async run(creates, lockTimeout) {
      const time = now();
      const createdAt = time.toISOString();
      // Not earlier: creates that wait would need twice the memory.
      const input = JSON.stringify(
        creates.map(({ fields, key, author }) => ({ ...fields, ...key, author })),
      );
      const values = [input, createdAt, lockTimeout, time.getTime()];
      const work = (session: Session) =>
        creates.some(({ key }) => key !== null)
          ? session.all<CreatedRow>(withKeys, ...values, expiryTime(time))
          : session.all<CreatedRow>(withoutKeys, ...values);
      const rows = await db.runAdmitted("write", work, {
        requests: creates.length,
        // The statement reads what a constraint depends on, so it violates one only if that has changed since.
        mayRetry: (error) => isRolledBack(error) || isConstraintViolation(error),
      });
      const ordered = byPosition(rows);
      return creates.map((create, at) => outcomeOf(itemAt(ordered, at), create, createdAt));
    },
    mayBeCausedByOneItem: isStatementError,
  });
}
