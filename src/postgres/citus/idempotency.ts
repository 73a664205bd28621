/** Idempotency keys. They are distributed by key, so that a key is unique whatever its request creates. */
import { fail } from "../../error.ts";
import type { CreateResult, IdempotencyKey } from "../../idempotency.ts";
import type { Connection, Session } from "../connection.ts";
import { expiryTime } from "../idempotency.ts";

interface KeyRow {
  readonly fingerprint: string;
  readonly record: string;
}

/** Waits for a concurrent transaction that claims the same key. An expired key is claimed again. */
const claim = `
  insert into idempotency_keys (owner, key, fingerprint, record, created_at)
  values ($1, $2, $3, $4, $5)
  on conflict (key, owner) do update
  set fingerprint = excluded.fingerprint, record = excluded.record, created_at = excluded.created_at
  where idempotency_keys.created_at <= $6
  returning owner
`;
const find = `
  select fingerprint, record
  from idempotency_keys
  where owner = $1 and key = $2
`;

/** How a record is created. The id comes first, so that one statement stores the key together with the record. */
export interface Creation<Row> {
  /** Assigns an id. @returns the record to be created */
  prepare(session: Session): Promise<Row>;
  insert(session: Session, record: Row): Promise<void>;
}

export interface CitusIdempotencyStore {
  /**
   * Creates a record once per key. The key and the record are stored in one transaction.
   * @param key `null` to create the record without a key
   * @throws {AppError} key_reused if the key belongs to a different request
   */
  once<Row>(key: IdempotencyKey | null, creation: Creation<Row>): Promise<CreateResult<Row>>;
}

export function createCitusIdempotencyStore({ db, now }: Connection): CitusIdempotencyStore {
  async function onceInTransaction<Row>(
    session: Session,
    { owner, key, fingerprint }: IdempotencyKey,
    { prepare, insert }: Creation<Row>,
  ): Promise<CreateResult<Row>> {
    for (;;) {
      const record = await prepare(session);
      const text = JSON.stringify(record);
      const time = now();
      const times = [time.toISOString(), expiryTime(time)];
      const claimed = await session.first(claim, owner, key, fingerprint, text, ...times);
      if (claimed !== null) {
        await insert(session, record);
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
    once<Row>(key: IdempotencyKey | null, creation: Creation<Row>) {
      return db.transact(async (session): Promise<CreateResult<Row>> => {
        if (key !== null) return onceInTransaction(session, key, creation);
        const record = await creation.prepare(session);
        await creation.insert(session, record);
        return { record, replayed: false };
      });
    },
  };
}
