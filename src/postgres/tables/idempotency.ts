/**
 * Idempotency keys. Creates claim theirs by `on conflict`, in the statement that inserts the records, so that a batch needs
 * no other one. An update or a delete must know that the key is new before it reads the record, and may end without a
 * write. It claims the key after the write, in the same transaction. No lock comes before: that of a row would give the
 * transaction its number before the record is read, and the numbers order the changes of a record.
 */
import { AppError } from "../../base/error.ts";
import { type IdempotencyKey, replay } from "../../domain/idempotency.ts";
import type { RecordText } from "../../domain/record.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session } from "../server/connection.ts";
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
 * @throws runAgain if another write has claimed the key since
 */
export async function writeOnce<Row>(
  session: Session,
  idempotencyKey: IdempotencyKey,
  userId: number | null,
  { now, expiryTime }: Pick<StoreContext, "now" | "expiryTime">,
  write: () => Promise<RecordText<Row> | null>,
): Promise<RecordText<Row> | null> {
  const { owner, key, fingerprint } = idempotencyKey;
  const expired = expiryTime();
  const replayed = async () => {
    const stored = await session.first<Parameters<typeof replay>[0]>(find, owner, key, expired);
    return stored && replay<Row>(stored, idempotencyKey);
  };
  const stored = await replayed();
  if (stored !== null) return stored;
  // Another write with the key, committed since, can be why this one is rejected, or finds no record.
  const record = await write().catch(async (error) => {
    throw error instanceof AppError && (await replayed()) !== null ? runAgain : error;
  });
  if (record === null) return replayed();
  const values = [owner, key, fingerprint, record.json, userId, now().toISOString(), expired];
  if ((await session.first(store, ...values)) === null) throw runAgain;
  return record;
}

export async function deleteExpiredKeys({ db, expiryTime }: StoreContext): Promise<boolean> {
  const time = expiryTime();
  const deleted = await db.run("background", (session) => session.all(deleteBatch, time));
  return deleted.length === DELETE_BATCH_SIZE;
}
