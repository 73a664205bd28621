import type { Database } from "bun:sqlite";
import { type IdempotencyKey, replay } from "../../domain/idempotency.ts";
import type { RecordTable, RecordText } from "../../domain/record.ts";
import type { User } from "../../domain/user.ts";
import type { Writer } from "../engine/writer.ts";

/** Maximum number of keys deleted per transaction, which takes a few milliseconds. */
const DELETE_BATCH_SIZE = 500;

export type IdempotencyStore = ReturnType<typeof createIdempotencyStore>;

export function createIdempotencyStore(db: Database, writer: Writer, timestamp: () => string) {
  const find = db.prepare<Record<"fingerprint" | "record", string>, string[]>(`
    select fingerprint, record
    from idempotency_keys
    where owner = ? and key = ?
  `);
  const store = db.prepare<null, (string | number | null)[]>(`
    insert into idempotency_keys (owner, key, fingerprint, record, user_id, created_at)
    values (?, ?, ?, ?, ?, ?)
  `);
  const deleteOfUser = db.prepare<null, { id: number }>(`
    delete from idempotency_keys
    where user_id = $id
  `);
  const replaceOfUser = db.prepare<null, { id: number; json: string }>(`
    update idempotency_keys
    set record = $json
    where user_id = $id
  `);
  const deleteBatch = db.prepare<null, { before: string }>(`
    delete from idempotency_keys
    where created_at < $before and id in (
      select id
      from idempotency_keys
      order by id
      limit ${DELETE_BATCH_SIZE}
    )
  `);

  return {
    /**
     * Writes once per key, with which the result is stored in the same transaction. @returns the result of the first write
     * @param write returns the record after the write; `null` if there is none, which is not stored
     * @throws {AppError} idempotency_key_reused if the key was used for a different request
     */
    once<Result extends RecordText<unknown> | null>(
      key: IdempotencyKey | null,
      table: RecordTable,
      write: () => Result,
    ): Result {
      if (key === null) return write();
      const stored = find.get(key.owner, key.key);
      if (stored !== null) return replay(stored, key) as Result;
      const record = write();
      if (record !== null) {
        const userId = table === "users" ? record.id : null;
        store.run(key.owner, key.key, key.fingerprint, record.json, userId, timestamp());
      }
      return record;
    },
    forgetUser: (id: number) => deleteOfUser.run({ id }),
    replaceOfUser: ({ id, json }: RecordText<User>) =>
      writer.write("idempotency_keys", () => void replaceOfUser.run({ id, json })),
    async deleteExpired(before: Date): Promise<boolean> {
      const deleteExpired = () => deleteBatch.run({ before: before.toISOString() }).changes;
      return (await writer.write("idempotency_keys", deleteExpired)) === DELETE_BATCH_SIZE;
    },
  };
}
