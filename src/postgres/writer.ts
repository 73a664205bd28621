/**
 * Batched creates. Records that are created in one turn of the event loop, or while others are being created, share
 * one statement and therefore one commit. Each has its own outcome.
 */
import { fail } from "../error.ts";
import type { CreateResult, IdempotencyKey } from "../idempotency.ts";
import { byPosition, createBatchQueue } from "./batch.ts";
import type { Database } from "./connection.ts";
import { isRowLockTimeout, isStatementError } from "./errors.ts";
import { expiryTime } from "./idempotency.ts";

const MAX_CREATES = 256;
/** More would compete for the rows that count the records. */
const MAX_BATCHES = 3;
/** Maximum size of a batch in UTF-16 code units of JSON. */
const MAX_BATCH_LENGTH = 2 ** 19;
/** If a batch waits longer than this for a row, each of its records is created alone. */
const ROW_LOCK_TIMEOUT = "200ms";
/** Maximum number of locked rows that creates wait for at the same time, each on a connection. */
const MAX_LOCKED = 2;

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
export interface CreateParts<Fields, Row> extends CreateStatementParts {
  /** The values of the columns. JSON columns are objects. */
  readonly toInput: (fields: Fields) => Readonly<Record<string, unknown>>;
  /** Values that must be unique, apart from the key: creates with a common one do not run at the same time. */
  readonly conflictKeysOf: (fields: Fields) => readonly string[];
  /** Identifies the row that the create locks. If it is locked, one create finds that out for all that need it. */
  readonly lockOf: (fields: Fields) => string;
  /** @throws {AppError} always: the error of a record that is rejected */
  readonly throwRejected: () => never;
  readonly toRecord: (id: number, fields: Fields, time: string) => Row;
}

/** Creates a record, once per key. @throws {AppError} key_reused if the key belongs to a different request */
export type Create<Fields, Row> = (
  fields: Fields,
  key: IdempotencyKey | null,
) => Promise<CreateResult<Row>>;

export interface Writer {
  prepare<Fields, Row>(parts: CreateParts<Fields, Row>): Create<Fields, Row>;
}

interface PendingCreate {
  /** Input of the statement. */
  readonly json: string;
  readonly conflict_keys: readonly string[];
  readonly lock: string;
}

interface Outcome {
  readonly row: CreatedRow;
  readonly created_at: string;
}

/** @param lock_timeout `null` for that of the connection */
type RunCreates = (
  creates: readonly PendingCreate[],
  lock_timeout: string | null,
) => Promise<readonly Outcome[]>;

function prepareStatement({ writeMany }: Database, now: () => Date, statement: string): RunCreates {
  return async (creates, lock_timeout) => {
    const time = now();
    const created_at = time.toISOString();
    const input = `[${creates.map(({ json }) => json).join(",")}]`;
    const values = [input, created_at, expiryTime(time), lock_timeout];
    const rows = await writeMany(creates.length, (session) =>
      session.all<CreatedRow>(statement, ...values),
    );
    return byPosition(rows).map((row) => ({ row, created_at }));
  };
}

/** A create that waits for a locked row, in a separate statement. */
interface LockedCreate {
  readonly lock: string;
  readonly run: () => Promise<readonly Outcome[]>;
}

type EnqueueLocked = (create: LockedCreate) => Promise<Outcome>;

/** @returns a function that runs a create in a batch */
function createQueue(
  run: RunCreates,
  enqueueLocked: EnqueueLocked,
): (create: PendingCreate) => Promise<Outcome> {
  const waitForRow = (create: PendingCreate) =>
    enqueueLocked({ lock: create.lock, run: () => run([create], null) });

  /** Runs creates that do not wait for the rows that they refer to. */
  async function runUnlocked(creates: readonly PendingCreate[]) {
    const outcomes = await run(creates, ROW_LOCK_TIMEOUT);
    return creates.map((create, at) => {
      const outcome = outcomes[at] as Outcome;
      return outcome.row.is_locked ? waitForRow(create) : outcome;
    });
  }

  /** Creates that run alone: only one at a time for each row, because the row may be locked. */
  const enqueueAlone = createBatchQueue({
    async run(creates: readonly PendingCreate[]) {
      try {
        return await runUnlocked(creates);
      } catch (error) {
        if (isRowLockTimeout(error)) return creates.map(waitForRow);
        throw error;
      }
    },
    max_items: 1,
    conflictKeysOf: ({ lock }) => [lock],
  });
  /** Rows of creates that run alone, until the first of these creates has ended. */
  const suspects = new Set<string>();

  async function runAlone(create: PendingCreate): Promise<Outcome> {
    suspects.add(create.lock);
    try {
      return await enqueueAlone(create);
    } finally {
      suspects.delete(create.lock);
    }
  }

  /** If a batch fails because of one of its creates, each one runs alone, so that only that one fails. */
  async function runBatch(creates: readonly PendingCreate[]) {
    try {
      return await runUnlocked(creates);
    } catch (error) {
      const is_of_one = creates.length > 1 && isStatementError(error);
      if (is_of_one || isRowLockTimeout(error)) return creates.map(runAlone);
      throw error;
    }
  }

  const enqueue = createBatchQueue<PendingCreate, Outcome>({
    run: runBatch,
    max_items: MAX_CREATES,
    max_batches: MAX_BATCHES,
    max_size: MAX_BATCH_LENGTH,
    sizeOf: ({ json }) => json.length,
    conflictKeysOf: ({ conflict_keys }) => conflict_keys,
  });
  // A row that may be locked would delay the next batch, too.
  return (create) => (suspects.has(create.lock) ? runAlone(create) : enqueue(create));
}

export function createWriter(db: Database, now: () => Date): Writer {
  const enqueueLocked = createBatchQueue<LockedCreate, Outcome>({
    run: async ([create]) => (await create?.run()) ?? [],
    max_items: 1,
    max_batches: MAX_LOCKED,
    conflictKeysOf: ({ lock }) => [lock],
  });
  return {
    prepare<Fields, Row>(parts: CreateParts<Fields, Row>): Create<Fields, Row> {
      const { toInput, conflictKeysOf, lockOf, throwRejected, toRecord } = parts;
      const run = prepareStatement(db, now, createStatement(parts));
      const enqueue = createQueue(run, enqueueLocked);

      async function create(
        fields: Fields,
        key: IdempotencyKey | null,
      ): Promise<CreateResult<Row>> {
        const json = JSON.stringify({ ...toInput(fields), ...key });
        const conflict_keys = [...conflictKeysOf(fields)];
        if (key !== null) conflict_keys.push(`${key.owner} ${key.key}`);
        const pending: PendingCreate = { json, conflict_keys, lock: lockOf(fields) };
        for (;;) {
          const { row, created_at } = await enqueue(pending);
          if (row.stored_record !== null) {
            if (row.stored_fingerprint !== key?.fingerprint) {
              fail("key_reused", "the idempotency key was used for another request");
            }
            return { record: JSON.parse(row.stored_record), replayed: true };
          }
          if (row.is_rejected) throwRejected();
          if (row.is_created) {
            const record = toRecord(Number(row.id), fields, created_at);
            return { record, replayed: false };
          }
          // A concurrent transaction has claimed the key since. The next statement finds it.
        }
      }

      return (fields, key) => db.limiter.admit("write", () => create(fields, key));
    },
  };
}
