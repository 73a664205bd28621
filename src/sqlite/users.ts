import type { Database } from "bun:sqlite";
import type { Clock } from "../clock.ts";
import { fail } from "../error.ts";
import { rowsToRead } from "../page.ts";
import type { ReadsAtOnce } from "../store.ts";
import {
  createdUser,
  emailKey,
  type StoredUser,
  type User,
  type UserFields,
  type UserQuery,
  type UserStore,
  userJson,
} from "../user.ts";
import { requireVersion } from "../version.ts";
import { createBuckets, type Place } from "./buckets.ts";
import type { TableWriter } from "./commit.ts";
import type { Keys } from "./keys.ts";
import type { ListReader, ReadList } from "./lists.ts";
import type { TableReader } from "./read.ts";

export function fromRow(row: StoredUser): User {
  return { ...row, metadata: JSON.parse(row.metadata) };
}

export function toRow({ email, name, metadata }: UserFields) {
  return { email, email_key: emailKey(email), name, metadata: JSON.stringify(metadata) };
}

export const columns = "id, email, name, metadata, version, created_at, updated_at";

/** The list of all users, or of the one with an email. */
function prepareList(db: Database): ReadList<UserQuery, StoredUser> {
  const all = createBuckets(db).full("users");
  const page = db.prepare<StoredUser, Place & { limit: number }>(`
    select ${columns}
    from users
    where id > $after
    order by id
    limit $limit offset $skip
  `);
  const withEmail = db.prepare<StoredUser, { email_key: string }>(`
    select ${columns}
    from users
    where email_key = $email_key
  `);

  return (query) => {
    const { offset, after, email } = query;
    if (email !== undefined) {
      const found = withEmail.all({ email_key: emailKey(email) });
      const rows = found.filter(({ id }) => id > (after ?? 0)).slice(offset);
      return { total: found.length, rows };
    }
    const total = all.total();
    const limit = rowsToRead(query);
    if (after !== undefined) return { total, rows: page.iterate({ after, skip: 0, limit }) };
    return { total, rows: offset < total ? page.iterate({ ...all.find(offset), limit }) : [] };
  };
}

export function createUserStore(
  db: Database,
  lists: ListReader,
  reader: TableReader,
  writer: TableWriter,
  keys: Keys,
  clock: Clock,
): UserStore & { readonly getAtOnce: ReadsAtOnce["user"] } {
  const list = lists.prepare("users", prepareList, userJson);
  const withId = db.prepare<StoredUser, { id: number }>(`
    select ${columns}
    from users
    where id = $id
  `);
  const insert = db.prepare<null, ReturnType<typeof toRow> & { now: string }>(`
    insert into users (email, email_key, name, metadata, version, created_at, updated_at)
    values ($email, $email_key, $name, $metadata, 1, $now, $now)
    on conflict (email_key) do nothing
  `);
  // Asked for, since "update or ignore" would also hide a broken CHECK.
  const takenByAnother = db.prepare<{ id: number }, { email_key: string; id: number }>(`
    select id
    from users
    where email_key = $email_key and id <> $id
  `);
  const change = db.prepare<StoredUser, ReturnType<typeof toRow> & { id: number; now: string }>(`
    update users
    set email = $email,
      email_key = $email_key,
      name = $name,
      metadata = $metadata,
      version = version + 1,
      updated_at = max(updated_at, $now)
    where id = $id
    returning ${columns}
  `);
  const anOrder = db.prepare<{ id: number }, { id: number }>(`
    select id
    from orders
    where user_id = $id
    limit 1
  `);
  const erase = db.prepare<null, { id: number }>("delete from users where id = $id");

  function find(id: number): User | null {
    const row = withId.get({ id });
    return row === null ? null : fromRow(row);
  }

  const getAtOnce = (id: number) => reader.read(find, id);

  return {
    list,

    getAtOnce,
    async get(id) {
      return getAtOnce(id);
    },

    create(fields, key) {
      return writer.write(() =>
        keys.once(key, () => {
          const time = clock();
          const { changes, lastInsertRowid } = insert.run({ ...toRow(fields), now: time });
          if (changes === 0) fail("conflict", "email is already taken");
          // Not asked back, which is 40 % of the insert: it is what was just written.
          return createdUser(Number(lastInsertRowid), fields, time);
        }),
      );
    },

    update(id, edit, accepted) {
      return writer.write(() => {
        const user = find(id);
        if (user === null) return null;
        requireVersion(user, accepted);
        const fields = edit(user);
        if (fields === null) return user;
        const row = toRow(fields);
        if (takenByAnother.get({ email_key: row.email_key, id }) !== null) {
          fail("conflict", "email is already taken");
        }
        const changed = change.get({ ...row, id, now: clock() });
        return changed && fromRow(changed);
      });
    },

    remove(id, accepted) {
      return writer.write(() => {
        const user = find(id);
        if (user === null) return null;
        requireVersion(user, accepted);
        if (anOrder.get({ id }) !== null) fail("conflict", "user has orders");
        erase.run({ id });
        return user;
      });
    },
  };
}
