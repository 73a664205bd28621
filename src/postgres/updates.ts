/** Updates and deletes of single records. Those of a batch share a statement that reads, and one that writes. */
import type { ChangeType } from "../change.ts";
import type { Author, RecordTable, RecordText } from "../record.ts";
import { columnDefinitions } from "./columns.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import { recordStatement } from "./outbox.ts";
import { createWriteQueue, type Outcome } from "./write-queue.ts";

const MAX_UPDATES = 64;

interface Update<Values, Row> {
  readonly kind: "update";
  readonly values: Values;
  /** The response. */
  readonly record: RecordText<Row>;
  /** Whether it may wait for a transaction that has not locked the record itself, so that it must run alone. */
  readonly mayWait: boolean;
}

interface Removal<Row> {
  readonly kind: "remove";
  /** The response. */
  readonly record: RecordText<Row>;
}

/** Nothing is to be written. */
interface Unchanged<Row> {
  readonly kind: "unchanged";
  readonly record: RecordText<Row>;
}

/**
 * Decides what a request writes. It is called again with a later version if the record has changed since.
 * @throws {AppError} if the request is rejected
 */
type Decide<Stored, Values, Row> = (
  stored: Stored,
  time: Date,
) => Update<Values, Row> | Removal<Row> | Unchanged<Row>;

/**
 * Runs an update or delete, after the earlier ones of the same record.
 * @returns `null` if the record does not exist
 */
export type RunUpdate<Stored, Values, Row> = (
  id: number,
  author: Author,
  decide: Decide<Stored, Values, Row>,
) => Promise<RecordText<Row> | null>;

interface Versioned {
  readonly id: number;
  readonly version: number;
}

/** How the records of one table are updated and deleted. */
export interface UpdateParts<Stored> {
  readonly table: RecordTable;
  /** @returns the records that exist. No row is locked: one that has another version when it is written stays as it is */
  readonly read: (session: Session, ids: readonly number[]) => Promise<readonly Stored[]>;
  /** The columns of the values with their types. */
  readonly values: Readonly<Record<string, string>>;
  readonly updated: ChangeType;
  /** How records are deleted; `null` for those that never are. */
  readonly removal: {
    readonly type: ChangeType;
    /** @returns the ids of those that cannot be deleted */
    readonly findBlocked: (
      session: Session,
      ids: readonly number[],
    ) => Promise<ReadonlySet<number>>;
    /** @throws {AppError} always: the error of those */
    readonly throwBlocked: () => never;
  } | null;
  /** What a statement and a change need of a record besides its id and version. */
  readonly detailsOf: (stored: Stored) => {
    /** The user that determines its server. */
    readonly user: number | null;
    readonly status: number | null;
  };
  /** The code of the status in the values. */
  readonly status: string;
  /** A condition on the row. `$3` is an array of users. */
  readonly condition: string;
  /** Called with the error of a write of one record. @throws {AppError} if the request is rejected */
  readonly explain: (error: unknown) => void;
}

const inputColumns = {
  id: "bigint",
  version: "bigint",
  author: "text",
  time: "bigint",
  status_before: "smallint",
};

/**
 * `$1` is a JSON array of records, `$2` an array of their ids, `$3` one of their users. The statement returns the ids of those
 * that it has written. It locks no row before: one that has another version after a wait is not written.
 */
function writeStatement<Stored>(
  { table, condition }: UpdateParts<Stored>,
  input: Readonly<Record<string, string>>,
  write: string,
  change: { readonly type: ChangeType; readonly status: string },
): string {
  return `
    with
      input as materialized (
        select *
        from json_to_recordset($1::text::json) as input (${columnDefinitions(input)})
      ),
      written as (
        ${write}
        where ${table}.id = any($2::bigint[])
          and ${condition}
          and ${table}.id = input.id
          and ${table}.version = input.version
        returning ${table}.id, ${table}.version
      ),
      recorded as (${recordStatement({
        type: change.type,
        from: "written join input on input.id = written.id",
        id: "written.id",
        version: "written.version",
        status: change.status,
        statusBefore: "input.status_before",
        token: "input.author",
        time: "input.time",
      })})
    select id
    from written
  `;
}

function updateStatement<Stored>(parts: UpdateParts<Stored>): string {
  const { table, values, updated, status } = parts;
  const set = Object.keys(values).map((name) => `${name} = input.${name}`);
  const write = `
    update ${table}
    set ${set.join(", ")}, version = ${table}.version + 1
    from input
  `;
  return writeStatement(parts, { ...inputColumns, ...values }, write, { type: updated, status });
}

function deleteStatement<Stored>(parts: UpdateParts<Stored>, type: ChangeType): string {
  const write = `delete from ${parts.table} using input`;
  return writeStatement(parts, inputColumns, write, { type, status: "null" });
}

function failedBy(work: () => never): Outcome<never> {
  try {
    return work();
  } catch (error) {
    return { kind: "failed", error };
  }
}

/** @returns a function that runs updates and deletes of one table */
export function prepareUpdates<Stored extends Versioned, Values extends object, Row>(
  context: StoreContext,
  parts: UpdateParts<Stored>,
): RunUpdate<Stored, Values, Row> {
  interface Item {
    readonly id: number;
    readonly author: Author;
    readonly decide: Decide<Stored, Values, Row>;
  }
  type Done = Outcome<RecordText<Row> | null>;
  /** A record that is written if it still has the version that was read. */
  interface Target {
    readonly kind: "update" | "remove";
    readonly stored: Stored;
    readonly author: Author;
    readonly values: Values | null;
    readonly record: RecordText<Row>;
  }
  type Step = Done | Target;

  const { table, read, removal, detailsOf, explain } = parts;
  const update = updateStatement(parts);
  const remove = removal === null ? null : deleteStatement(parts, removal.type);

  function plan({ author, decide }: Item, stored: Stored, time: Date, isAlone: boolean): Step {
    try {
      const decision = decide(stored, time);
      const { kind, record } = decision;
      if (kind === "unchanged") return { kind: "done", result: record };
      if (kind === "remove") return { kind, stored, author, values: null, record };
      if (decision.mayWait && !isAlone) return { kind: "again" };
      return { kind, stored, author, values: decision.values, record };
    } catch (error) {
      return { kind: "failed", error };
    }
  }

  /** Writes records. @returns the ids of those that had the version */
  async function write(
    session: Session,
    statement: string,
    targets: readonly Target[],
    time: Date,
  ): Promise<readonly number[]> {
    if (targets.length === 0) return [];
    // In one order, so that two batches do not deadlock.
    const ordered = targets.toSorted((one, other) => one.stored.id - other.stored.id);
    const details = ordered.map(({ stored }) => detailsOf(stored));
    const input = ordered.map(({ stored: { id, version }, author, values }, at) => ({
      id,
      version,
      author,
      time: time.getTime(),
      status_before: details[at]?.status ?? null,
      ...values,
    }));
    const ids = ordered.map(({ stored }) => stored.id);
    const users = details.map(({ user }) => user).filter((user) => user !== null);
    const rows = await session.all<{ id: number }>(statement, JSON.stringify(input), ids, users);
    return rows.map(({ id }) => id);
  }

  /** Deletes records, and adds the ids to `written`. @returns the outcomes of those that cannot be deleted */
  async function removeAll(
    session: Session,
    removals: readonly Target[],
    time: Date,
    written: Set<number>,
  ): Promise<ReadonlyMap<number, Done>> {
    const outcomes = new Map<number, Done>();
    if (removal === null || remove === null || removals.length === 0) return outcomes;
    // Rather than by an error of the statement, which PostgreSQL would log.
    const blocked = await removal.findBlocked(
      session,
      removals.map(({ stored }) => stored.id),
    );
    for (const id of blocked) {
      outcomes.set(id, failedBy(removal.throwBlocked));
    }
    const free = removals.filter(({ stored }) => !blocked.has(stored.id));
    for (const id of await write(session, remove, free, time)) written.add(id);
    return outcomes;
  }

  async function run(
    session: Session,
    items: readonly Item[],
    isAlone: boolean,
  ): Promise<readonly Done[]> {
    const rows = await read(
      session,
      items.map(({ id }) => id),
    );
    const found = new Map(rows.map((row) => [row.id, row]));
    const time = context.now();
    const steps = items.map((item): Step => {
      const stored = found.get(item.id);
      return stored === undefined
        ? { kind: "done", result: null }
        : plan(item, stored, time, isAlone);
    });
    const updates = steps.filter((step): step is Target => step.kind === "update");
    const written = new Set(await write(session, update, updates, time));
    // Not both: a batch is no transaction, and if the second statement failed, the writes of the first would be repeated.
    const removals =
      updates.length > 0 ? [] : steps.filter((step): step is Target => step.kind === "remove");
    const blocked = await removeAll(session, removals, time, written);
    return steps.map((step): Done => {
      if (!("stored" in step)) return step;
      if (written.has(step.stored.id)) return { kind: "done", result: step.record };
      return blocked.get(step.stored.id) ?? { kind: "again" };
    });
  }

  const enqueue = createWriteQueue<Item, RecordText<Row> | null>(context, {
    maxItems: MAX_UPDATES,
    run,
    conflictKeysOf: ({ id }) => [`${id}`],
    lockOf: ({ id }) => `${table} ${id}`,
    explain,
  });
  return (id, author, decide) => enqueue({ id, author, decide });
}
