import type { Database } from "bun:sqlite";
import { type Clock, createClock } from "../clock.ts";
import { fail } from "../error.ts";
import { type Created, type IdempotencyKey, KEY_LIFETIME_MS } from "../idempotency.ts";

/** Keys forgotten in one transaction: requests wait for it. */
const SWEEP_KEYS = 500;

interface KeyRow {
  readonly fingerprint: string;
  readonly record: string;
}

export interface Keys {
  /**
   * Makes a record once per key, inside the transaction of the caller: what the key stands for and
   * what it made are stored together or not at all.
   * @throws {AppError} key_reused when the key stands for another request
   */
  once<Row>(key: IdempotencyKey | null, make: () => Row): Created<Row>;
  /**
   * Forgets keys that are past their lifetime, as many as are forgotten within a few milliseconds.
   * @returns whether there may be more
   */
  sweep(): boolean;
}

export function createKeys(db: Database, now: () => Date, clock: Clock): Keys {
  const find = db.prepare<KeyRow, { owner: string; key: string; expired: string }>(`
    select fingerprint, record
    from idempotency_keys
    where owner = $owner and key = $key and created_at > $expired
  `);
  const claim = db.prepare<null, Record<keyof IdempotencyKey | "record" | "now", string>>(`
    insert or replace into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ($owner, $key, $fingerprint, $record, $now)
  `);
  const forget = db.prepare<null, { expired: string }>(`
    delete from idempotency_keys
    where created_at <= $expired and id in (
      select id
      from idempotency_keys
      order by id
      limit ${SWEEP_KEYS}
    )
  `);

  const expired = createClock(() => new Date(now().getTime() - KEY_LIFETIME_MS));

  return {
    once(key, make) {
      if (key === null) return { record: make(), replayed: false };
      const claimed = find.get({ owner: key.owner, key: key.key, expired: expired() });
      if (claimed !== null && claimed.fingerprint !== key.fingerprint) {
        fail("key_reused", "the idempotency key was used for another request");
      }
      if (claimed !== null) return { record: JSON.parse(claimed.record), replayed: true };
      const record = make();
      claim.run({ ...key, record: JSON.stringify(record), now: clock() });
      return { record, replayed: false };
    },
    sweep() {
      return forget.run({ expired: expired() }).changes >= SWEEP_KEYS;
    },
  };
}
