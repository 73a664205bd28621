import { fail } from "../error.ts";
import { type CreateResult, type IdempotencyKey, KEY_LIFETIME_MS } from "../idempotency.ts";
import type { Database, Session } from "./connection.ts";

/** Number of expired keys that one statement deletes at most. */
const DELETE_BATCH_SIZE = 1000;

interface KeyRow {
  readonly fingerprint: string;
  readonly record: string;
}

/** Waits for a concurrent transaction that claims the same key. An expired key is claimed again. */
const claim = `
  insert into idempotency_keys (owner, key, fingerprint, record, created_at)
  values ($1, $2, $3, '{}', $4)
  on conflict (owner, key) do update
  set fingerprint = excluded.fingerprint, record = excluded.record, created_at = excluded.created_at
  where idempotency_keys.created_at <= $5
  returning owner
`;
const store_record = `
  update idempotency_keys
  set record = $3
  where owner = $1 and key = $2
`;
const find = `
  select fingerprint, record
  from idempotency_keys
  where owner = $1 and key = $2
`;
const expired_keys = `
  select key
  from idempotency_keys
  where created_at <= $1
  limit ${DELETE_BATCH_SIZE}
`;
const delete_keys = `
  delete from idempotency_keys
  where key = any($1::text[]) and created_at <= $2
`;

export interface IdempotencyStore {
  /**
   * Creates a record once per key. The key and the record are stored in one transaction.
   * @param key `null` to create the record without a key
   * @throws {AppError} key_reused if the key belongs to a different request
   */
  once<Row>(
    key: IdempotencyKey | null,
    create: (session: Session) => Promise<Row>,
  ): Promise<CreateResult<Row>>;
  /** Deletes expired keys in batches. */
  deleteExpired(): Promise<void>;
}

export function createIdempotencyStore(db: Database, now: () => Date): IdempotencyStore {
  function expiryTime(): string {
    return new Date(now().getTime() - KEY_LIFETIME_MS).toISOString();
  }

  async function onceInTransaction<Row>(
    session: Session,
    { owner, key, fingerprint }: IdempotencyKey,
    create: (session: Session) => Promise<Row>,
  ): Promise<CreateResult<Row>> {
    for (;;) {
      const time = now().toISOString();
      const claimed_row = await session.first(claim, owner, key, fingerprint, time, expiryTime());
      if (claimed_row !== null) {
        const record = await create(session);
        await session.first(store_record, owner, key, JSON.stringify(record));
        return { record, replayed: false };
      }
      const existing = await session.first<KeyRow>(find, owner, key);
      // The key has expired and was deleted since the claim, so it can be claimed again.
      if (existing === null) continue;
      if (existing.fingerprint !== fingerprint) {
        fail("key_reused", "the idempotency key was used for another request");
      }
      return { record: JSON.parse(existing.record), replayed: true };
    }
  }

  return {
    async once(key, create) {
      if (key !== null) return db.transact((session) => onceInTransaction(session, key, create));
      return { record: await db.write(create), replayed: false };
    },
    async deleteExpired() {
      const time = expiryTime();
      const deleteBatch = async (session: Session) => {
        const rows = await session.all<{ key: string }>(expired_keys, time);
        await session.all(
          delete_keys,
          rows.map(({ key }) => key),
          time,
        );
        return rows.length;
      };
      // One transaction per batch, so that other writes can run in between.
      while ((await db.write(deleteBatch)) === DELETE_BATCH_SIZE);
    },
  };
}
