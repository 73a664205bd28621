/**
 * Creates claim their keys in the statement that inserts the records. An update or a delete reads the record, then its key:
 * another write with the key, committed before, can be why it is rejected, or finds no record. It claims the key after the
 * write. No lock comes before: that of a row would give the transaction its number before the record is read, and the
 * numbers order the changes of a record.
 */
import { type IdempotencyKey, replay } from "../../domain/idempotency.ts";
import type { RecordText } from "../../domain/record.ts";
import { itemAt } from "../engine/batch.ts";
import type { Database, Session } from "../server/connection.ts";
import { runAgain } from "../server/retry.ts";
import { inputRows } from "./columns.ts";

const DELETE_BATCH_SIZE = 1000;

const deleteBatch = `
  delete from idempotency_keys
  where ctid = any(array(
    select ctid
    from idempotency_keys
    where created_at < $1::text
    order by created_at
    limit ${DELETE_BATCH_SIZE}
  ))
  returning key
`;

/** Two writes with a common name do not run at the same time. */
export const namesOf = (key: IdempotencyKey | null): readonly string[] =>
  key === null ? [] : [`${key.owner} ${key.key}`];

/** The rest of a query for what is stored with the key of the row `input`. */
export const ofKey = `
    from idempotency_keys
    where idempotency_keys.key = input.key
      and idempotency_keys.owner = input.owner
`;

const columns = {
  owner: "text",
  key: "text",
  fingerprint: "text",
  record: "text",
  user_id: "bigint",
};

/** @returns a statement that inserts results, except those whose key another write has claimed. @param rows what has them */
export function claimKeys(rows: string, createdAt: string): string {
  const names = Object.keys(columns).join(", ");
  return `
      insert into idempotency_keys (${names}, created_at)
      select ${names}, ${createdAt}
      from ${rows}
      order by key collate "C", owner collate "C"
      on conflict (key, owner) do nothing
      returning owner, key
  `;
}

const store = claimKeys(inputRows(columns), "$2::text");
// `offset 0` keeps PostgreSQL from reading all keys.
const find = `
  select at, stored.*
  from ${inputRows({ at: "integer", owner: "text", key: "text" })}
  cross join lateral (select fingerprint, record ${ofKey} offset 0) as stored
`;

export async function findReplays<Row, Item extends { readonly key: IdempotencyKey | null }>(
  session: Session,
  items: readonly Item[],
): Promise<ReadonlyMap<Item, () => RecordText<Row>>> {
  if (items.every(({ key }) => key === null)) return new Map();
  const input = JSON.stringify(items.map(({ key }, at) => ({ ...key, at })));
  type Found = Parameters<typeof replay>[0] & { readonly at: number };
  const rows = await session.all<Found>(find, input);
  const entries = rows.map((stored) => [itemAt(items, stored.at), stored] as const);
  return new Map(entries.map(([item, stored]) => [item, () => replay<Row>(stored, item.key)]));
}

/** @param results rows with these columns. @throws runAgain if another write has claimed one of the keys since */
export async function storeResults(session: Session, results: readonly object[], time: Date) {
  if (results.length === 0) return;
  const values = [JSON.stringify(results), time.toISOString()];
  if ((await session.all(store, ...values)).length < results.length) throw runAgain;
}

export async function deleteExpiredKeys(db: Database, before: Date): Promise<boolean> {
  const time = before.toISOString();
  const deleted = await db.run("background", (session) => session.all(deleteBatch, time));
  return deleted.length === DELETE_BATCH_SIZE;
}
