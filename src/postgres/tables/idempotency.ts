import { deleteInBatches } from "../../base/delete-in-batches.ts";
import { type IdempotencyKey, KEY_LIFETIME_MS, replay } from "../../domain/idempotency.ts";
import type { RecordText } from "../../domain/record.ts";
import type { Database, Session } from "../server/connection.ts";
import { versionConflict } from "../server/retry.ts";

const DELETE_BATCH_SIZE = 1000;

const deleteBatch = `
  delete from idempotency_keys
  where ctid = any(array(
    select ctid
    from idempotency_keys
    where created_at <= $1
    order by created_at
    limit ${DELETE_BATCH_SIZE}
  ))
  returning key
`;

/** @returns the time, in RFC 3339, at or before which the keys that have expired were stored */
export function expiryTime(now: Date): string {
  return new Date(now.getTime() - KEY_LIFETIME_MS).toISOString();
}

/** Waits for another transaction that has claimed the key. The row has no user before it has a record. */
const claim = `
  insert into idempotency_keys (owner, key, fingerprint, record, created_at)
  values ($1, $2, $3, '', $4)
  on conflict (key, owner) do update
  set fingerprint = excluded.fingerprint, user_id = null, created_at = excluded.created_at
  where idempotency_keys.created_at <= $5
  returning key
`;
const find = `
  select fingerprint, record
  from idempotency_keys
  where owner = $1 and key = $2
`;
const store = `
  update idempotency_keys
  set record = $3, user_id = $4
  where owner = $1 and key = $2
`;
const release = `
  delete from idempotency_keys
  where owner = $1 and key = $2
`;

/**
 * Writes once per key. @see RecordStore
 * @param session in a transaction
 * @param userId of the user that is written; `null` for an order
 * @param write returns the record after the write; `null` if there is none, which is not stored
 */
export async function writeOnce<Row>(
  session: Session,
  idempotencyKey: IdempotencyKey,
  userId: number | null,
  now: Date,
  write: () => Promise<RecordText<Row> | null>,
): Promise<RecordText<Row> | null> {
  const { owner, key, fingerprint } = idempotencyKey;
  const times = [now.toISOString(), expiryTime(now)];
  if ((await session.first(claim, owner, key, fingerprint, ...times)) === null) {
    const stored = await session.first<{ fingerprint: string; record: string }>(find, owner, key);
    // It may have been deleted since.
    if (stored === null) throw versionConflict;
    return replay(stored, idempotencyKey);
  }
  const record = await write();
  if (record === null) await session.all(release, owner, key);
  else await session.all(store, owner, key, record.json, userId);
  return record;
}

export async function deleteExpiredKeys(
  db: Database,
  now: Date,
  signal?: AbortSignal,
): Promise<void> {
  const time = expiryTime(now);
  await deleteInBatches(async () => {
    const deleted = await db.run("background", (session) => session.all(deleteBatch, time));
    return deleted.length < DELETE_BATCH_SIZE;
  }, signal);
}
