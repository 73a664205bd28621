/**
 * Updates and deletes of single records. The updates of a batch share a statement that reads, and one that writes. Deletes
 * are rare, and run alone.
 */

import type { IdempotencyKey } from "../../domain/idempotency.ts";
import { type Preconditions, requirePreconditions } from "../../domain/precondition.ts";
import {
  type Author,
  changesNothing,
  jsonText,
  nextVersion,
  type RecordText,
} from "../../domain/record.ts";
import { itemAt } from "../engine/batch.ts";
import type { StoreContext } from "../engine/context.ts";
import { createWriteQueue, type Outcome } from "../engine/write-queue.ts";
import type { Session } from "../server/connection.ts";
import { runAgain } from "../server/retry.ts";
import { inputRows } from "./columns.ts";
import { writeOnce } from "./idempotency.ts";
import {
  type EditableTable,
  prepareUpdate,
  type RecordWrite,
  type Stored,
  type WriteRecords,
} from "./record-writes.ts";
import { failRejected, type Rejection, rejectionOf } from "./rejections.ts";

const MAX_UPDATES = 64;

interface UpdateParts<Row, Edit> {
  readonly editable: EditableTable<Edit>;
  /** @returns the records that exist. No row is locked: one that has another version when it is written stays as it is */
  readonly read: (session: Session, ids: readonly number[]) => Promise<readonly RecordText<Row>[]>;
  /**
   * Whether others can prevent an update, or have it wait for a transaction that has not locked the record itself: then it
   * must run alone.
   */
  readonly mayConflict: (edit: Edit, before: Row) => boolean;
  readonly rejections: readonly Rejection[];
  /** How users are deleted; `null` for orders. */
  readonly removal: {
    readonly write: WriteRecords;
    readonly requireFree: (session: Session, id: number) => Promise<void>;
    /** Prevents it until the end of the transaction. @throws runAgain if the user was deleted since it was read */
    readonly prevent: (session: Session, id: number) => Promise<void>;
  } | null;
}

function throwRunAgain(): never {
  throw runAgain;
}

interface Item<Row, Edit> {
  readonly id: number;
  readonly key: IdempotencyKey | null;
  readonly author: Author;
  readonly preconditions: Preconditions | null;
  /** `null` to delete a user. It is called again with a later version if the record has changed since. */
  readonly edit: ((record: Row) => Edit) | null;
}

type Done<Row> = Outcome<RecordText<Row> | null>;

interface Target<Row, Edit> extends RecordWrite {
  readonly item: Item<Row, Edit>;
  readonly mayConflict: boolean;
  /** The response. */
  readonly record: RecordText<Row>;
}

/** @returns a function that throws {AppError} if other records prevent an update */
function prepareRequireValid(
  { columns }: EditableTable<never>,
  rejections: readonly Rejection[],
): (session: Session, { before, values }: RecordWrite) => Promise<void> {
  const select = `
    select ${rejectionOf(rejections, "<> input.id")} as rejection
    from ${inputRows({ id: "bigint", ...columns })}
  `;
  return async (session, { before, values }) => {
    const input = JSON.stringify([{ id: before.id, ...values }]);
    const row = await session.first<{ rejection: number | null }>(select, input);
    failRejected(rejections, row?.rejection ?? null);
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
    return { item, before, author, values: {}, mayConflict: false, record: stored };
  const edit = item.edit(before);
  if (changesNothing<Edit>(before, edit)) return stored;
  const after = nextVersion<Row>(before, { ...before, ...edit }, time.toISOString());
  const values = { ...editable.valuesOf(edit), updated_at: after.updated_at };
  const record = { id, version: after.version, json: jsonText(after) };
  return { item, before, author, values, mayConflict: mayConflict(edit, before), record };
}

/** @returns a function that updates or deletes a record, after the earlier writes of the same record */
export function prepareUpdates<Row extends Edit & Stored, Edit extends object>(
  context: StoreContext,
  parts: UpdateParts<Row, Edit>,
) {
  const { editable, removal } = parts;
  const { table } = editable;
  const update = prepareUpdate(context.placement, editable);
  const requireValid = prepareRequireValid(editable, parts.rejections);

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
    const outcomes = new Map<Item<Row, Edit>, Done<Row>>();
    const targets: Target<Row, Edit>[] = [];
    for (const item of items) {
      try {
        const stored = found.get(item.id);
        const planned = stored === undefined ? null : planItem(parts, item, stored, time);
        const isWrite = planned !== null && "item" in planned;
        if (planned !== null && !isWrite && item.key !== null)
          await removal?.prevent(session, item.id);
        if (!isWrite) outcomes.set(item, () => planned);
        else if (isAlone || !planned.mayConflict) targets.push(planned);
      } catch (error) {
        outcomes.set(item, () => {
          throw error;
        });
      }
    }
    for (const target of targets) {
      if (target.mayConflict) await requireValid(session, target);
      if (target.item.edit === null) await removal?.requireFree(session, target.item.id);
    }
    const isRemoval = itemAt(items, 0).edit === null;
    const write = isRemoval && removal !== null ? removal.write : update;
    const written = await write(session, targets, time);
    for (const { item, record } of targets) {
      if (written.has(item.id)) outcomes.set(item, () => record);
    }
    return items.map((item) => outcomes.get(item) ?? throwRunAgain);
  }

  return createWriteQueue<Item<Row, Edit>, RecordText<Row> | null>(context, {
    maxItems: MAX_UPDATES,
    async run(session, items, isAlone) {
      const { id, key } = itemAt(items, 0);
      if (key === null) return run(session, items, isAlone);
      const userId = table === "users" ? id : null;
      const record = await writeOnce(session, key, userId, context, async () =>
        itemAt(await run(session, items, isAlone), 0)(),
      );
      return [() => record];
    },
    mustRunAlone: ({ key, edit }) => key !== null || edit === null,
    conflictKeysOf: ({ id }) => [`${id}`],
    lockOf: ({ id }) => `${table} ${id}`,
  });
}
