/** Updates, which share statements, and deletes, which are rare and run alone. */
import { changedFields } from "../../domain/change.ts";
import type { IdempotencyKey } from "../../domain/idempotency.ts";
import { type Preconditions, requirePreconditions } from "../../domain/precondition.ts";
import { type Author, jsonText, nextVersion, type RecordText } from "../../domain/record.ts";
import { itemAt } from "../engine/batch.ts";
import type { StoreContext } from "../engine/context.ts";
import { createWriteQueue, type Outcome } from "../engine/write-queue.ts";
import type { Session } from "../server/connection.ts";
import { sqlState } from "../server/errors.ts";
import { runAgain } from "../server/retry.ts";
import { inputRows } from "./columns.ts";
import { findReplays, namesOf, storeResults } from "./idempotency.ts";
import type { EditableTable, RecordWrite, Stored, WriteRecords } from "./record-writes.ts";
import { prepareUpdate } from "./record-writes.ts";
import { type Rejection, rejectionOf } from "./rejections.ts";

const MAX_UPDATES = 64;

const lockUsers = "select id from users where id = any($1::bigint[]) order by id for key share";

interface UpdateParts<Row, Edit> {
  readonly editable: EditableTable<Edit>;
  /** @returns the records that exist. No row is locked: one that has another version when it is written stays as it is */
  readonly read: (session: Session, ids: readonly number[]) => Promise<readonly RecordText<Row>[]>;
  /** Whether it can be prevented by others, or wait for one that has not locked the record itself: then it must run alone. */
  readonly mayConflict: (edit: Edit, before: Row) => boolean;
  readonly rejections: readonly Rejection[];
  /** How users are deleted; `null` for orders. */
  readonly removal: {
    readonly write: WriteRecords;
    readonly requireFree: (session: Session, id: number) => Promise<void>;
  } | null;
}

interface Item<Row, Edit> {
  readonly id: number;
  readonly key: IdempotencyKey | null;
  readonly author: Author;
  readonly preconditions: Preconditions | null;
  /** `null` to delete a user. It is called again with a later version if the record has changed since. */
  readonly edit: ((record: Row) => Edit) | null;
}

interface Target<Row, Edit> extends RecordWrite {
  readonly item: Item<Row, Edit>;
  readonly mayConflict: boolean;
  readonly record: RecordText<Row>;
}

function prepareRequireValid({ columns }: EditableTable<never>, rejections: readonly Rejection[]) {
  const select = `
    select ${rejectionOf(rejections, "<> input.id")} as rejection
    from ${inputRows({ id: "bigint", ...columns })}
  `;
  return async (session: Session, { before, values }: RecordWrite) => {
    const input = JSON.stringify([{ id: before.id, ...values }]);
    const row = await session.first<{ rejection: number | null }>(select, input);
    if (row?.rejection != null) rejections[row.rejection]?.fail();
  };
}

/** @returns what is written; the response if nothing is. @throws {AppError} if the request is rejected */
function planItem<Row extends Edit & Stored, Edit extends object>(
  { editable, mayConflict }: UpdateParts<Row, Edit>,
  item: Item<Row, Edit>,
  stored: RecordText<Row>,
  time: Date,
): Target<Row, Edit> | RecordText<Row> {
  requirePreconditions(stored, item.preconditions);
  const before: Row = JSON.parse(stored.json);
  const { id, author } = item;
  if (item.edit === null)
    return { item, before, author, values: {}, fields: null, mayConflict: false, record: stored };
  const edit = item.edit(before);
  const fields = changedFields(before, edit);
  if (fields === 0) return stored;
  const after = nextVersion<Row>(before, { ...before, ...edit }, time.toISOString());
  const values = { ...editable.valuesOf(edit), updated_at: after.updated_at };
  const record = { id, version: after.version, json: jsonText(after) };
  return { item, before, author, values, fields, mayConflict: mayConflict(edit, before), record };
}

export function prepareUpdates<Row extends Edit & Stored, Edit extends object>(
  context: StoreContext,
  parts: UpdateParts<Row, Edit>,
) {
  const { editable, removal } = parts;
  const { table } = editable;
  const update = prepareUpdate(context.placement, editable);
  const requireValid = prepareRequireValid(editable, parts.rejections);

  async function updateItems(
    session: Session,
    items: readonly Item<Row, Edit>[],
    isAlone: boolean,
  ): Promise<readonly Outcome<RecordText<Row> | null>[]> {
    const ids = items.map(({ id }) => id);
    const rows = await parts.read(session, ids);
    const found = new Map(rows.map((row) => [row.id, row]));
    const time = context.now();
    const records = new Map<Item<Row, Edit>, RecordText<Row> | null>();
    const errors = new Map<Item<Row, Edit>, unknown>();
    const targets: Target<Row, Edit>[] = [];
    for (const item of items) {
      try {
        const stored = found.get(item.id);
        const planned = stored === undefined ? null : planItem(parts, item, stored, time);
        if (planned === null || !("item" in planned)) records.set(item, planned);
        else if (isAlone || !planned.mayConflict) {
          if (planned.mayConflict) await requireValid(session, planned);
          if (item.edit === null) await removal?.requireFree(session, item.id);
          targets.push(planned);
        }
      } catch (error) {
        // After an error of the server, the transaction has failed.
        if (sqlState(error) !== "") throw error;
        errors.set(item, error);
      }
    }
    const replays = await findReplays<Row, Item<Row, Edit>>(session, items);
    const writes = targets.filter(({ item }) => !replays.has(item));
    const isRemoval = itemAt(items, 0).edit === null;
    const write = isRemoval && removal !== null ? removal.write : update;
    const written = await write(session, writes, time);
    for (const { item, record } of writes) if (written.has(item.id)) records.set(item, record);
    const results = [...records].flatMap(([item, record]) => {
      if (item.key === null || record === null || replays.has(item)) return [];
      const userId = table === "users" ? item.id : null;
      return { ...item.key, id: item.id, record: record.json, user_id: userId };
    });
    const unchanged = results.filter(({ id }) => !written.has(id)).map(({ id }) => id);
    if (removal !== null && unchanged.length > 0) {
      // Otherwise a key could keep what a delete makes the others forget.
      const users = await session.all(lockUsers, unchanged);
      if (users.length < unchanged.length) throw runAgain;
    }
    await storeResults(session, results, time);
    const outcomeOf = (item: Item<Row, Edit>) => () => {
      const record = records.get(item);
      if (record === undefined) throw errors.get(item) ?? runAgain;
      return record;
    };
    return items.map((item) => replays.get(item) ?? outcomeOf(item));
  }

  return createWriteQueue<Item<Row, Edit>, RecordText<Row> | null>(context, {
    maxItems: MAX_UPDATES,
    run: updateItems,
    mustRunAlone: ({ edit }) => edit === null,
    isTransaction: (items) => items.some(({ key }) => key !== null),
    conflictKeysOf: ({ id, key }) => [`${id}`, ...namesOf(key)],
    lockOf: ({ id }) => `${table} ${id}`,
  });
}
