import { deleteInBatches } from "../../base/delete-in-batches.ts";
import { KEY_LIFETIME_MS } from "../../domain/idempotency.ts";
import type { Database } from "../server/connection.ts";

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
