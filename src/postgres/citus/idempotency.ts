/** Idempotency keys. They are distributed by key, so that a key is unique whatever its request creates. */
import type { IdempotencyKey } from "../../idempotency.ts";
import type { Session } from "../connection.ts";
import { nameOf, type Outcome } from "../create-queue.ts";

/** A key, and the record, as JSON, that its request creates. */
interface NewKey extends IdempotencyKey {
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
const findOne = `
  select fingerprint, record
  from idempotency_keys
  where owner = $1 and key = $2
`;
const findMany = `
  select owner, key, fingerprint, record, created_at
  from idempotency_keys
  where key = any($1::text[]) and owner = any($2::text[])
`;
const deleteExpired = `
  delete from idempotency_keys
  where key = any($1::text[]) and owner = any($2::text[]) and created_at <= $3
`;
// Without `on conflict`, with which Citus writes the rows to a file for each shard first: 75 ms instead of 3.
const insertMany = `
  insert into idempotency_keys (owner, key, fingerprint, record, created_at)
  select owner, key, fingerprint, record, $2
  from json_to_recordset($1::text::json) as input (
    owner text, key text, fingerprint text, record text
  )
`;

/** @returns the values of `$1` and `$2`: the keys, and their owners */
function namesOf(keys: readonly IdempotencyKey[]): [string[], string[]] {
  return [keys.map(({ key }) => key), [...new Set(keys.map(({ owner }) => owner))]];
}

/**
 * Stores a key unless it is stored already.
 * @param time when it is stored
 * @param expiry keys stored at or before this time have expired
 * @returns `null` if it was stored
 */
export async function claimKey(
  session: Session,
  { owner, key, fingerprint, record }: NewKey,
  time: string,
  expiry: string,
): Promise<Outcome<never> | null> {
  const claimed = await session.first(claim, owner, key, fingerprint, record, time, expiry);
  if (claimed !== null) return null;
  const row = await session.first<NewKey>(findOne, owner, key);
  // It has expired and was deleted since the claim, so it can be claimed again.
  if (row === null) return { kind: "conflict" };
  return { kind: "stored", fingerprint: row.fingerprint, record: row.record };
}

type StoredKey = NewKey & { readonly created_at: string };

interface FoundKeys {
  /** By `nameOf`. */
  readonly stored: ReadonlyMap<string, Outcome<never>>;
  readonly expired: readonly IdempotencyKey[];
}

/** Finds the keys that are stored. */
export async function findKeys(
  session: Session,
  keys: readonly IdempotencyKey[],
  expiry: string,
): Promise<FoundKeys> {
  const stored = new Map<string, Outcome<never>>();
  const expired: IdempotencyKey[] = [];
  if (keys.length === 0) return { stored, expired };
  const rows = await session.all<StoredKey>(findMany, ...namesOf(keys));
  for (const row of rows) {
    const { fingerprint, record } = row;
    if (row.created_at > expiry) stored.set(nameOf(row), { kind: "stored", fingerprint, record });
    else expired.push(row);
  }
  return { stored, expired };
}

/** Deletes expired keys, so that they can be stored again. */
export async function deleteKeys(
  session: Session,
  keys: readonly IdempotencyKey[],
  expiry: string,
): Promise<void> {
  if (keys.length > 0) await session.all(deleteExpired, ...namesOf(keys), expiry);
}

/** Stores keys, none of which is stored already. */
export async function insertKeys(
  session: Session,
  keys: readonly NewKey[],
  time: string,
): Promise<void> {
  if (keys.length > 0) await session.all(insertMany, JSON.stringify(keys), time);
}
