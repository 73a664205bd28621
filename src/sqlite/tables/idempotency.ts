import type { Database } from "bun:sqlite";
import { deleteInBatches } from "../../base/delete-in-batches.ts";
import {
  type CreateResult,
  type IdempotencyKey,
  KEY_LIFETIME_MS,
  replay,
} from "../../domain/idempotency.ts";
import type { RecordText } from "../../domain/record.ts";
import type { Writer } from "../engine/writer.ts";

/** Maximum number of keys deleted per transaction, which takes a few milliseconds. */
const DELETE_BATCH_SIZE = 500;

export type IdempotencyStore = ReturnType<typeof createIdempotencyStore>;

export function createIdempotencyStore(
  db: Database,
  writer: Writer,
  now: () => Date,
  timestamp: () => string,
) {
  const find = db.prepare<
    Record<"fingerprint" | "record", string>,
    Record<"owner" | "key" | "expired", string>
  >(`
    select fingerprint, record
    from idempotency_keys
    where owner = $owner and key = $key and created_at > $expired
  `);
  const claim = db.prepare<null, Record<keyof IdempotencyKey | "record" | "now", string>>(`
    insert or replace into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ($owner, $key, $fingerprint, $record, $now)
  `);
  const deleteBatch = db.prepare<null, { expired: string }>(`
    delete from idempotency_keys
    where created_at <= $expired and id in (
      select id
      from idempotency_keys
      order by id
      limit ${DELETE_BATCH_SIZE}
    )
  `);

  const expiryTime = () => new Date(now().getTime() - KEY_LIFETIME_MS).toISOString();

  return {
    /**
     * Call `find`, create the record, and call `store`, in one transaction: the record and its key are stored together or not
     * at all.
     * @param key `null` creates a record each time
     * @returns the result of the first request with the key; `null` if this is the first one
     * @throws {AppError} idempotency_key_reused if the key was used for a different request
     */
    find<Row>(key: IdempotencyKey | null): CreateResult<Row> | null {
      if (key === null) return null;
      const stored = find.get({ owner: key.owner, key: key.key, expired: expiryTime() });
      return stored && replay(stored, key);
    },
    store<Row>(key: IdempotencyKey | null, record: RecordText<Row>): CreateResult<Row> {
      if (key !== null) claim.run({ ...key, record: record.json, now: timestamp() });
      return { record, replayed: false };
    },
    async deleteExpired(signal?: AbortSignal): Promise<void> {
      const deleteExpired = () => deleteBatch.run({ expired: expiryTime() }).changes;
      await deleteInBatches(
        async () => (await writer.write("idempotency_keys", deleteExpired)) < DELETE_BATCH_SIZE,
        signal,
      );
    },
  };
}
