/**
 * Batched creates. Records that are created in one turn of the event loop, or while others are being created, share
 * one statement and therefore one commit.
 */
import type { IdempotencyKey } from "../idempotency.ts";
import { byPosition } from "./batch.ts";
import type { Database } from "./connection.ts";
import {
  type Create,
  type CreateQueueOptions,
  createCreateQueue,
  createLockedQueue,
  type Outcome,
  type PendingCreate,
} from "./create-queue.ts";
import { isStatementError } from "./errors.ts";
import { expiryTime } from "./idempotency.ts";

interface CreateStatementParts {
  readonly table: "users" | "orders";
  /** Columns that a create sets, with their types, apart from the id, the version and the times. */
  readonly columns: Readonly<Record<string, string>>;
  /** A condition on the row `input`: the record cannot be created. It may read rows by a unique column only. */
  readonly rejected: string;
  /**
   * A condition on the row `input`: another transaction has locked a row that the record refers to. It locks the row
   * itself if it can.
   */
  readonly locked: string;
  /** The record as JSON, from the columns of its table. */
  readonly json: string;
  /** The order of the inserts, which is the order of their locks. */
  readonly order: string;
}

/**
 * Parameters of the statement: the creates as a JSON array, their time, the time at or before which expired keys were
 * stored, and the lock timeout, `null` for that of the connection. Only with `null` does the statement wait for a locked
 * row that a record refers to. It returns a `CreatedRow` for each create.
 *
 * Rows that records refer to are locked first if they are free, without waiting. The statement waits for locks only in
 * this order: keys, unique columns, foreign keys, and counts (by triggers). So two batches cannot deadlock. Rows are read
 * by subqueries, each with conditions on one unique index only: the plan may be made while the tables are empty, when any
 * other plan seems equally cheap.
 */
function createStatement(parts: CreateStatementParts): string {
  const { table, rejected, locked, json, order } = parts;
  const columns = Object.keys(parts.columns).join(", ");
  const input = Object.entries({
    ...parts.columns,
    owner: "text",
    key: "text",
    fingerprint: "text",
  });
  const input_types = input.map(([name, type]) => `${name} ${type}`).join(", ");
  const input_names = input.map(([name]) => name).join(", ");
  return `
    with
      input as materialized (
        select ${input_names}, position
        from rows from (json_to_recordset($1::text::json) as (${input_types}))
          with ordinality as input (${input_names}, position)
        where (
          select set_config('lock_timeout', coalesce($4::text, current_setting('lock_timeout')), true)
        ) <> ''
      ),
      found as materialized (
        select
          input.*, stored.fingerprint as stored_fingerprint, stored.record as stored_record,
          ${rejected} as rejected, $4::text is not null and ${locked} as locked
        from input
        left join lateral (
          select fingerprint, record, created_at
          from idempotency_keys
          where idempotency_keys.owner = input.owner and idempotency_keys.key = input.key
          limit 1
        ) as stored on stored.created_at > $3
      ),
      planned as materialized (
        select
          found.*, 1 as version, $2::text as created_at, $2::text as updated_at,
          case
            when stored_fingerprint is null and not rejected and not locked
              then nextval('${table}_id_seq')
          end as id
        from found
      ),
      claimed as (
        insert into idempotency_keys (owner, key, fingerprint, record, created_at)
        select owner, key, fingerprint, ${json}, created_at
        from planned
        where key is not null and id is not null
        order by key collate "C", owner collate "C"
        on conflict (owner, key) do update
        set fingerprint = excluded.fingerprint, record = excluded.record, created_at = excluded.created_at
        where idempotency_keys.created_at <= $3
        returning owner, key
      ),
      decided as materialized (
        select
          planned.*,
          id is not null and (key is null or (owner, key) in (select owner, key from claimed))
            as is_created
        from planned
      ),
      inserted as (
        insert into ${table} (id, ${columns}, version, created_at, updated_at)
        select id, ${columns}, version, created_at, updated_at
        from decided
        where is_created
        order by ${order}
      )
    select
      position::integer as position, id::float8 as id, is_created, rejected as is_rejected,
      stored_fingerprint is null and not rejected and locked as is_locked, stored_fingerprint,
      stored_record
    from decided
  `;
}

interface CreatedRow {
  readonly position: number;
  readonly id: number | null;
  readonly is_created: boolean;
  readonly is_rejected: boolean;
  readonly is_locked: boolean;
  /** Fingerprint and record stored with the key; `null` if the key is new. */
  readonly stored_fingerprint: string | null;
  readonly stored_record: string | null;
}

/** How records of one table are created. */
export interface CreateParts<Fields, Row>
  extends CreateStatementParts,
    Pick<CreateQueueOptions<Fields, Row>, "conflictKeysOf" | "lockOf" | "throwRejected"> {
  /** The values of the columns. JSON columns are objects. */
  readonly toInput: (fields: Fields) => Readonly<Record<string, unknown>>;
  readonly toRecord: (id: number, fields: Fields, time: string) => Row;
}

export interface Writer {
  prepare<Fields, Row>(parts: CreateParts<Fields, Row>): Create<Fields, Row>;
}

function prepareStatement<Fields, Row>(
  { writeMany }: Database,
  now: () => Date,
  parts: CreateParts<Fields, Row>,
): CreateQueueOptions<Fields, Row>["run"] {
  const statement = createStatement(parts);

  function outcomeOf(row: CreatedRow, { fields }: PendingCreate<Fields>, time: string) {
    const { id, is_created, is_rejected, is_locked, stored_fingerprint, stored_record } = row;
    if (stored_fingerprint !== null && stored_record !== null) {
      return { kind: "stored", fingerprint: stored_fingerprint, record: stored_record } as const;
    }
    if (is_rejected) return { kind: "rejected" } as const;
    if (is_locked) return { kind: "locked" } as const;
    if (!is_created) return { kind: "conflict" } as const;
    return { kind: "created", record: parts.toRecord(Number(id), fields, time) } as const;
  }

  return async (creates, lock_timeout) => {
    const time = now();
    const created_at = time.toISOString();
    const input = `[${creates.map(({ json }) => json).join(",")}]`;
    const values = [input, created_at, expiryTime(time), lock_timeout];
    const rows = await writeMany(creates.length, (session) =>
      session.all<CreatedRow>(statement, ...values),
    );
    const ordered = byPosition(rows);
    return creates.map(
      (create, at): Outcome<Row> => outcomeOf(ordered[at] as CreatedRow, create, created_at),
    );
  };
}

export function createWriter(db: Database, now: () => Date): Writer {
  const enqueueLocked = createLockedQueue();
  return {
    prepare(parts) {
      return createCreateQueue(db, enqueueLocked, {
        ...parts,
        toJson: (fields, key: IdempotencyKey | null) =>
          JSON.stringify({ ...parts.toInput(fields), ...key }),
        run: prepareStatement(db, now, parts),
        isOfOneCreate: isStatementError,
      });
    },
  };
}
