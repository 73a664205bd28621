import { fail } from "../error.ts";
import { type Created, type IdempotencyKey, KEY_LIFETIME_MS } from "../idempotency.ts";
import type { Database, Session } from "./connection.ts";

/** Keys forgotten with one statement. */
const SWEEP_KEYS = 1000;

interface KeyRow {
  readonly fingerprint: string;
  readonly record: string;
}

/** Waits for whoever else claims the key at the moment. One that is past its lifetime is claimed anew. */
const claim = `
  insert into idempotency_keys (owner, key, fingerprint, record, created_at)
  values ($1, $2, $3, '{}', $4)
  on conflict (owner, key) do update
  set fingerprint = excluded.fingerprint, record = excluded.record, created_at = excluded.created_at
  where idempotency_keys.created_at <= $5
  returning owner
`;
const keep = `
  update idempotency_keys
  set record = $3
  where owner = $1 and key = $2
`;
const find = `
  select fingerprint, record
  from idempotency_keys
  where owner = $1 and key = $2
`;
const old = `
  select key
  from idempotency_keys
  where created_at <= $1
  limit ${SWEEP_KEYS}
`;
const forget = `
  delete from idempotency_keys
  where key = any($1::text[]) and created_at <= $2
`;

export interface Keys {
  /**
   * Makes a record once per key, in one transaction: what the key stands for and what it made are stored
   * together or not at all.
   * @throws {AppError} key_reused when the key stands for another request
   */
  once<Row>(
    key: IdempotencyKey | null,
    make: (session: Session) => Promise<Row>,
  ): Promise<Created<Row>>;
  /** Forgets keys that are past their lifetime. */
  sweep(): Promise<void>;
}

export function createKeys(db: Database, now: () => Date): Keys {
  function expired(): string {
    return new Date(now().getTime() - KEY_LIFETIME_MS).toISOString();
  }

  async function onceIn<Row>(
    session: Session,
    { owner, key, fingerprint }: IdempotencyKey,
    make: (session: Session) => Promise<Row>,
  ): Promise<Created<Row>> {
    for (;;) {
      const time = now().toISOString();
      const mine = await session.first(claim, owner, key, fingerprint, time, expired());
      if (mine !== null) {
        const record = await make(session);
        await session.first(keep, owner, key, JSON.stringify(record));
        return { record, replayed: false };
      }
      const claimed = await session.first<KeyRow>(find, owner, key);
      // Forgotten in between: it is nobody's again.
      if (claimed === null) continue;
      if (claimed.fingerprint !== fingerprint) {
        fail("key_reused", "the idempotency key was used for another request");
      }
      return { record: JSON.parse(claimed.record), replayed: true };
    }
  }

  return {
    async once(key, make) {
      if (key !== null) return db.transact((session) => onceIn(session, key, make));
      return { record: await db.change(make), replayed: false };
    },
    async sweep() {
      const time = expired();
      const sweepSome = async (session: Session) => {
        const rows = await session.all<{ key: string }>(old, time);
        await session.all(
          forget,
          rows.map(({ key }) => key),
          time,
        );
        return rows.length;
      };
      // Others come between.
      while ((await db.change(sweepSome)) === SWEEP_KEYS);
    },
  };
}
