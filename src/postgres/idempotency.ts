import { KEY_LIFETIME_MS } from "../idempotency.ts";
import { untilDone } from "../until-done.ts";
import type { Database, Session } from "./connection.ts";

const DELETE_BATCH_SIZE = 1000;

const expiredKeys = `
  select key
  from idempotency_keys
  where created_at <= $1
  limit ${DELETE_BATCH_SIZE}
`;
const deleteKeys = `
  delete from idempotency_keys
  where key = any($1::text[]) and created_at <= $2
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
  const deleteBatch = async (session: Session) => {
    const rows = await session.all<{ key: string }>(expiredKeys, time);
    const keys = rows.map(({ key }) => key);
    await session.all(deleteKeys, keys, time);
    return rows.length;
  };
  await untilDone(
    async () => (await db.run("background", deleteBatch)) < DELETE_BATCH_SIZE,
    signal,
  );
}
