/** Updates and deletes of single records. Those of a batch share a statement that reads, and one that writes. */
import { type ChangeType, changeCodeOf } from "../../domain/change.ts";
import { type Preconditions, requirePreconditions } from "../../domain/precondition.ts";
import {
  type Author,
  changesNothing,
  jsonText,
  latestOf,
  type RecordTable,
  type RecordText,
} from "../../domain/record.ts";
import type { StoreContext } from "../engine/context.ts";
import { createWriteQueue, type Outcome } from "../engine/write-queue.ts";
import type { Session } from "../server/connection.ts";
import { oneServer } from "../server/placement.ts";
import { versionConflict } from "../server/retry.ts";
import { type ColumnTypes, columnDefinitions } from "./columns.ts";
import { statusCodeOf } from "./outbox.ts";

const MAX_UPDATES = 64;

interface Updatable {
  readonly version: number;
  readonly updated_at: string;
  /** Of an order. */
  readonly user_id?: number;
  readonly status?: string;
}

interface UpdateParts<Row, Edit> {
  readonly table: RecordTable;
  /** @returns the records that exist. No row is locked: one that has another version when it is written stays as it is */
  readonly read: (session: Session, ids: readonly number[]) => Promise<readonly RecordText<Row>[]>;
  /** The columns that an edit can change, apart from the version and the time. */
  readonly columns: ColumnTypes;
  /** @returns their values */
  readonly valuesOf: (edit: Edit) => object;
  readonly updated: ChangeType;
  /** Whether an update may wait for a transaction that has not locked the record itself, so that it must run alone. */
  readonly mayWait?: (edit: Edit, before: Row) => boolean;
  /** How records are deleted; `null` for those that never are. */
  readonly removal: {
    readonly type: ChangeType;
    /** Whether the record with this id cannot be deleted. */
    readonly isBlocked: (session: Session, id: number) => Promise<boolean>;
    /** @throws {AppError} always: the error of those */
    readonly throwBlocked: () => never;
  } | null;
  /** Called with the error of a write of one record. @throws {AppError} if the request is rejected */
  readonly explain?: (error: unknown) => void;
}

const inputColumns = {
  id: "bigint",
  version: "bigint",
  author: "text",
  time: "bigint",
  status_before: "text",
};

/**
 * `$1` is a JSON array of records, `$2` an array of their ids, `$3` one of their users. The statement returns the ids of those
 * that it has written. It locks no row before: one that has another version after a wait is not written.
 * @param write the beginning of the update or delete
 */
function writeStatement(
  table: RecordTable,
  ofUsers: string,
  type: ChangeType,
  write: string,
  values: ColumnTypes,
): string {
  const status = "status" in values ? statusCodeOf("input.status") : "null";
  return `
    with
      input as materialized (
        select *
        from json_to_recordset($1::text::json)
          as input (${columnDefinitions({ ...inputColumns, ...values })})
      ),
      written as (
        ${write}
        where ${table}.id = any($2::bigint[])
          and ${ofUsers}
          and ${table}.id = input.id
          and ${table}.version = input.version
        returning ${table}.id, ${table}.version
      ),
      recorded as (
        insert into change_outbox (type, record_id, version, status, status_before, token, created_at)
        select
          ${changeCodeOf(type)}, written.id, written.version, ${status}::smallint,
          ${statusCodeOf("status_before")}::smallint, author, time
        from written
        join input on input.id = written.id
      )
    select id
    from written
  `;
}

function throwConflict(): never {
  throw versionConflict;
}

interface Item<Row, Edit> {
  readonly id: number;
  readonly author: Author;
  readonly preconditions: Preconditions | null;
  /** `null` to delete the record. It is called again with a later version if the record has changed since. */
  readonly edit: ((record: Row) => Edit) | null;
}

type Done<Row> = Outcome<RecordText<Row> | null>;

/** A record that is written if it still has the version that was read. */
interface Target<Row, Edit> {
  readonly item: Item<Row, Edit>;
  readonly before: Row;
  readonly values: object;
  /** The response. */
  readonly record: RecordText<Row>;
}

/** The items of a batch. Those that are in none of its parts run again. */
interface Plan<Row, Edit> {
  readonly outcomes: Map<Item<Row, Edit>, Done<Row>>;
  readonly updates: Target<Row, Edit>[];
  readonly removals: Target<Row, Edit>[];
}

/** @returns those that had the version, and were written */
async function write<Row extends Updatable, Edit>(
  session: Session,
  statement: string,
  targets: readonly Target<Row, Edit>[],
  time: Date,
): Promise<readonly Target<Row, Edit>[]> {
  if (targets.length === 0) return [];
  // In one order, so that two batches do not deadlock.
  const ordered = targets.toSorted((one, other) => one.item.id - other.item.id);
  const input = ordered.map(({ item, before, values }) => ({
    id: item.id,
    version: before.version,
    author: item.author,
    time: time.getTime(),
    status_before: before.status,
    ...values,
  }));
  const ids = ordered.map(({ item }) => item.id);
  const users = ordered.flatMap(({ before }) => before.user_id ?? []);
  const rows = await session.all<{ id: number }>(statement, JSON.stringify(input), ids, users);
  const written = new Set(rows.map(({ id }) => id));
  return targets.filter(({ item }) => written.has(item.id));
}

/** Adds an item to the plan, unless it must run alone. @throws {AppError} if the request is rejected */
function addTo<Row extends Edit & Updatable, Edit extends object>(
  { outcomes, updates, removals }: Plan<Row, Edit>,
  { valuesOf, mayWait }: UpdateParts<Row, Edit>,
  item: Item<Row, Edit>,
  stored: RecordText<Row> | undefined,
  time: Date,
  isAlone: boolean,
): void {
  if (stored === undefined) return void outcomes.set(item, () => null);
  requirePreconditions(stored, item.preconditions);
  const before: Row = JSON.parse(stored.json);
  if (item.edit === null) return void removals.push({ item, before, values: {}, record: stored });
  const edit = item.edit(before);
  if (changesNothing<Edit>(before, edit)) return void outcomes.set(item, () => stored);
  if (!isAlone && mayWait?.(edit, before) === true) return;
  const updatedAt = latestOf(time.toISOString(), before.updated_at);
  const version = before.version + 1;
  const json = jsonText({ ...before, ...edit, version, updated_at: updatedAt });
  const values = { ...valuesOf(edit), updated_at: updatedAt };
  updates.push({ item, before, values, record: { id: item.id, version, json } });
}

/** @returns functions that update and delete a record, after the earlier ones of the same record */
export function prepareUpdates<Row extends Edit & Updatable, Edit extends object>(
  context: StoreContext,
  parts: UpdateParts<Row, Edit>,
) {
  const { table, removal } = parts;
  const { ofUsers } = table === "orders" ? context.placement : oneServer;
  const columns = { ...parts.columns, updated_at: "text" };
  const set = Object.keys(columns).map((name) => `${name} = input.${name}`);
  const update = writeStatement(
    table,
    ofUsers,
    parts.updated,
    `
        update ${table}
        set ${set.join(", ")}, version = ${table}.version + 1
        from input
    `,
    columns,
  );
  const remove =
    removal && writeStatement(table, ofUsers, removal.type, `delete from ${table} using input`, {});

  async function run(
    session: Session,
    items: readonly Item<Row, Edit>[],
    isAlone: boolean,
  ): Promise<readonly Done<Row>[]> {
    const rows = await parts.read(
      session,
      items.map(({ id }) => id),
    );
    const found = new Map(rows.map((row) => [row.id, row]));
    const time = context.now();
    const plan: Plan<Row, Edit> = { outcomes: new Map(), updates: [], removals: [] };
    const { outcomes, updates, removals } = plan;
    for (const item of items) {
      try {
        addTo(plan, parts, item, found.get(item.id), time, isAlone);
      } catch (error) {
        outcomes.set(item, () => {
          throw error;
        });
      }
    }
    const written = [...(await write(session, update, updates, time))];
    // Not both: a batch is no transaction, and if the second statement failed, the writes of the first would be repeated.
    if (updates.length === 0 && removal !== null && remove !== null) {
      const free: typeof removals = [];
      for (const target of removals) {
        // Rather than by an error of the statement, which PostgreSQL would log.
        const isBlocked = await removal.isBlocked(session, target.item.id);
        if (isBlocked) outcomes.set(target.item, removal.throwBlocked);
        else free.push(target);
      }
      written.push(...(await write(session, remove, free, time)));
    }
    for (const { item, record } of written) outcomes.set(item, () => record);
    return items.map((item) => outcomes.get(item) ?? throwConflict);
  }

  const enqueue = createWriteQueue<Item<Row, Edit>, RecordText<Row> | null>(context, {
    maxItems: MAX_UPDATES,
    async run(session, items, isAlone) {
      try {
        return await run(session, items, isAlone);
      } catch (error) {
        if (isAlone) parts.explain?.(error);
        throw error;
      }
    },
    conflictKeysOf: ({ id }) => [`${id}`],
    lockOf: ({ id }) => `${table} ${id}`,
  });
  return {
    update: (
      id: number,
      edit: (record: Row) => Edit,
      preconditions: Preconditions | null,
      author: Author = null,
    ) => enqueue({ id, edit, preconditions, author }),
    remove: (id: number, preconditions: Preconditions | null, author: Author = null) =>
      enqueue({ id, edit: null, preconditions, author }),
  };
}
