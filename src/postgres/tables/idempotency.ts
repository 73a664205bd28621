/**
 * Idempotency keys. Creates claim theirs by `on conflict`, in the statement that inserts the records, so that a batch needs
 * no other one. An update or a delete must know that the key is new before it reads the record, and may end without a
 * write: each holds a lock of its key, in a transaction of its own.
 */
import { type IdempotencyKey, KEY_LIFETIME_MS, replay } from "../../domain/idempotency.ts";
import type { RecordText } from "../../domain/record.ts";
import type { Database, Session } from "../server/connection.ts";
import { runAgain } from "../server/retry.ts";

const DELETE_BATCH_SIZE = 1000;

const deleteBatch = `
  delete from idempotency_keys
  where ctid = any(array(
    select ctid
    from idempotency_keys
    where created_at <= $1::text
    order by created_at
    limit ${DELETE_BATCH_SIZE}
  ))
  returning key
`;

/** @returns the time, in RFC 3339, at or before which the keys that have expired were stored */
export function expiryTime(now: Date): string {
  return new Date(now.getTime() - KEY_LIFETIME_MS).toISOString();
}

/**
 * Waits for another write with the key. Unlike a row, the lock does not give the transaction its number, before the record
 * is read: the numbers order the changes of a record. The first argument is "uapk" in ASCII.
 */
const lockKey = "select pg_catalog.pg_advisory_xact_lock(1969320043, $1::integer)";
const find = `
  select fingerprint, record
  from idempotency_keys
  where owner = $1::text and key = $2::text and created_at > $3::text
`;
const store = `
  insert into idempotency_keys (owner, key, fingerprint, record, user_id, created_at)
  values ($1::text, $2::text, $3::text, $4::text, $5::bigint, $6::text)
  on conflict (key, owner) do update
  set
    fingerprint = excluded.fingerprint, record = excluded.record,
    user_id = excluded.user_id, created_at = excluded.created_at
  where idempotency_keys.created_at <= $7::text
  returning key
`;

/**
 * Writes once per key, as `RecordStore` says.
 * @param session in a transaction
 * @param userId of the user that is written; `null` for an order
 * @param write returns the record after the write; `null` if there is none, which is not stored
 * @throws runAgain if a create has claimed the key since
 */
export async function writeOnce<Row>(
  session: Session,
  idempotencyKey: IdempotencyKey,
  userId: number | null,
  now: Date,
  write: () => Promise<RecordText<Row> | null>,
): Promise<RecordText<Row> | null> {
  const { owner, key, fingerprint } = idempotencyKey;
  const expired = expiryTime(now);
  // Signed. Two keys with the same hash wait for each other.
  await session.all(lockKey, Bun.hash.xxHash32(`${owner} ${key}`) | 0);
  const stored = await session.first<Record<"fingerprint" | "record", string>>(
    find,
    owner,
    key,
    expired,
  );
  if (stored !== null) return replay(stored, idempotencyKey);
  const record = await write();
  if (record === null) return null;
  const values = [owner, key, fingerprint, record.json, userId, now.toISOString(), expired];
  if ((await session.first(store, ...values)) === null) throw runAgain;
  return record;
}

export async function deleteExpiredKeys(db: Database, now: Date): Promise<boolean> {
  const time = expiryTime(now);
  const deleted = await db.run("background", (session) => session.all(deleteBatch, time));
  return deleted.length === DELETE_BATCH_SIZE;
}
