import { type Token, type TokenFields, type TokenStore, tokenColumns } from "../../domain/token.ts";
import type { StoreContext } from "./records.ts";

export function createTokenStore({ db, timestamp, reader, writer }: StoreContext): TokenStore {
  const table = "tokens";
  const all = db.prepare<Token, []>(`
    select ${tokenColumns}
    from tokens
    order by id
  `);
  const withHash = db.prepare<Token, { hash: string }>(`
    select ${tokenColumns}
    from tokens
    where hash = $hash
  `);
  const insert = db.prepare<Token, TokenFields & { now: string }>(`
    insert into tokens (hash, name, scope, created_at, expires_at)
    values ($hash, $name, $scope, $now, $expires_at)
    on conflict do nothing
    returning ${tokenColumns}
  `);
  const revoke = db.prepare<Token, { name: string; now: string }>(`
    update tokens
    set revoked_at = $now
    where name = $name and revoked_at is null
    returning ${tokenColumns}
  `);
  const touch = db.prepare<null, { hash: string; used_at: string }>(`
    update tokens
    set last_used_at = $used_at
    where hash = $hash
  `);

  const readToken = (hash: string) => withHash.get({ hash });

  return {
    list: async () => reader.read(table, () => all.all()),
    find: (hash) => reader.cached(table, hash, readToken),
    create: (fields) => writer.write(table, () => insert.get({ ...fields, now: timestamp() })),
    revoke: (name) => writer.write(table, () => revoke.get({ name, now: timestamp() })),
    async touch(hash, usedAt) {
      // At most once per minute and token.
      await writer.write(table, () => touch.run({ hash, used_at: usedAt }));
    },
  };
}
