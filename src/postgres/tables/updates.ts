/** Updates and deletes of single records. Those of a batch share a statement that reads, and one that writes. */
import { type ChangeType, changeCodeOf } from "../../domain/change.ts";
import type { OrderStatus } from "../../domain/order.ts";
import type { Author, RecordTable, RecordText } from "../../domain/record.ts";
import type { StoreContext } from "../engine/context.ts";
import { createWriteQueue, type Outcome } from "../engine/write-queue.ts";
import type { Session } from "../server/connection.ts";
import { oneServer } from "../server/placement.ts";
import { type ColumnTypes, columnDefinitions } from "./columns.ts";
import { statusCodeOf } from "./outbox.ts";

const MAX_UPDATES = 64;

interface Decision<Values, Row> {
  readonly kind: "update" | "remove" | "unchanged";
  /** The response. */
  readonly record: RecordText<Row>;
  /** Of an update. */
  readonly values?: Values;
  /** Whether it may wait for a transaction that has not locked the record itself, so that it must run alone. */
  readonly mayWait?: boolean;
}

/**
 * Decides what a request writes. It is called again with a later version if the record has changed since.
 * @throws {AppError} if the request is rejected
 */
type Decide<Stored, Values, Row> = (stored: Stored, time: Date) => Decision<Values, Row>;

interface Versioned {
  readonly id: number;
  readonly version: number;
  /** Of an order. */
  readonly user_id?: number;
  readonly status?: OrderStatus;
}

interface UpdateParts<Stored> {
  readonly table: RecordTable;
  /** @returns the records that exist. No row is locked: one that has another version when it is written stays as it is */
  readonly read: (session: Session, ids: readonly number[]) => Promise<readonly Stored[]>;
  readonly values: ColumnTypes;
  readonly updated: ChangeType;
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

/**
 * @returns a function that runs an update or delete, after the earlier ones of the same record. It returns `null` if the
 * record does not exist
 */
export function prepareUpdates<Stored extends Versioned, Values extends object, Row>(
  context: StoreContext,
  { table, read, values: columns, updated, removal, explain }: UpdateParts<Stored>,
) {
  interface Item {
    readonly id: number;
    readonly author: Author;
    readonly decide: Decide<Stored, Values, Row>;
  }
  type Done = Outcome<RecordText<Row> | null>;
  /** A record that is written if it still has the version that was read. */
  interface Target {
    readonly item: Item;
    readonly stored: Stored;
    readonly decision: Decision<Values, Row>;
  }
  const { ofUsers } = table === "orders" ? context.placement : oneServer;
  const set = Object.keys(columns).map((name) => `${name} = input.${name}`);
  const update = writeStatement(
    table,
    ofUsers,
    updated,
    `
        update ${table}
        set ${set.join(", ")}, version = ${table}.version + 1
        from input
    `,
    columns,
  );
  const remove =
    removal && writeStatement(table, ofUsers, removal.type, `delete from ${table} using input`, {});

  /** @returns those that had the version, and were written */
  async function write(
    session: Session,
    statement: string,
    targets: readonly Target[],
    time: Date,
  ): Promise<readonly Target[]> {
    if (targets.length === 0) return [];
    // In one order, so that two batches do not deadlock.
    const ordered = targets.toSorted((one, other) => one.stored.id - other.stored.id);
    const input = ordered.map(({ item, stored, decision }) => ({
      id: stored.id,
      version: stored.version,
      author: item.author,
      time: time.getTime(),
      status_before: stored.status,
      ...decision.values,
    }));
    const ids = ordered.map(({ stored }) => stored.id);
    const users = ordered.flatMap(({ stored }) => stored.user_id ?? []);
    const rows = await session.all<{ id: number }>(statement, JSON.stringify(input), ids, users);
    const written = new Set(rows.map(({ id }) => id));
    return targets.filter(({ stored }) => written.has(stored.id));
  }

  async function run(
    session: Session,
    items: readonly Item[],
    isAlone: boolean,
  ): Promise<readonly Done[]> {
    const ids = items.map(({ id }) => id);
    const rows = await read(session, ids);
    const found = new Map(rows.map((row) => [row.id, row]));
    const time = context.now();
    /** Those of other items are "again". */
    const outcomes = new Map<Item, Done>();
    const updates: Target[] = [];
    const removals: Target[] = [];

    /** An error of a step fails only its item. */
    function attempt(item: Item, step: () => void): void {
      try {
        step();
      } catch (error) {
        outcomes.set(item, { kind: "failed", error });
      }
    }

    function plan(item: Item): void {
      const stored = found.get(item.id);
      const decision = stored === undefined ? null : item.decide(stored, time);
      if (stored === undefined || decision === null || decision.kind === "unchanged") {
        outcomes.set(item, { kind: "done", result: decision?.record ?? null });
      } else if (isAlone || decision.mayWait !== true) {
        (decision.kind === "update" ? updates : removals).push({ item, stored, decision });
      }
    }

    for (const item of items) attempt(item, () => plan(item));
    const written = [...(await write(session, update, updates, time))];
    // Not both: a batch is no transaction, and if the second statement failed, the writes of the first would be repeated.
    if (updates.length === 0 && removal !== null && remove !== null) {
      const free: Target[] = [];
      for (const target of removals) {
        // Rather than by an error of the statement, which PostgreSQL would log.
        const isBlocked = await removal.isBlocked(session, target.stored.id);
        if (isBlocked) attempt(target.item, removal.throwBlocked);
        else free.push(target);
      }
      written.push(...(await write(session, remove, free, time)));
    }
    for (const { item, decision } of written) {
      outcomes.set(item, { kind: "done", result: decision.record });
    }
    return items.map((item) => outcomes.get(item) ?? { kind: "again" });
  }

  const enqueue = createWriteQueue<Item, RecordText<Row> | null>(context, {
    maxItems: MAX_UPDATES,
    async run(session, items, isAlone) {
      try {
        return await run(session, items, isAlone);
      } catch (error) {
        if (isAlone) explain?.(error);
        throw error;
      }
    },
    conflictKeysOf: ({ id }) => [`${id}`],
    lockOf: ({ id }) => `${table} ${id}`,
  });
  return (id: number, author: Author, decide: Decide<Stored, Values, Row>) =>
    enqueue({ id, author, decide });
}
