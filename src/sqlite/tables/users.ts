import type { Database } from "bun:sqlite";
import { emailKey } from "../../base/email.ts";
import { latestOf } from "../../base/timestamp.ts";
import { changeOf } from "../../domain/change.ts";
import { isAfter } from "../../domain/page.ts";
import { changesNothing, recordText } from "../../domain/record.ts";
import {
  failEmailTaken,
  failUserHasOrders,
  newUser,
  parseStoredUser,
  type StoredUser,
  User,
  type UserQuery,
  type UserRow,
  type UserStore,
  userJson,
  userRow,
} from "../../domain/user.ts";
import type { StoreContext } from "./context.ts";
import { prepareCountedList } from "./counted-list.ts";
import type { ReadRows } from "./lists.ts";
import { prepareRecords } from "./records.ts";

/** Reads the list of all users, or of the one user with an email. */
function prepareRows<Row extends { readonly id: number }>(
  db: Database,
  columns: string,
): ReadRows<UserQuery, Row> {
  const readAll = prepareCountedList<Row>(db, { table: "users", columns, where: "" });
  const withEmail = db.prepare<Row, { email_key: string }>(`
    select ${columns}
    from users
    where email_key = $email_key
  `);

  return (query) => {
    const { offset, email } = query;
    if (email === undefined) return readAll("users", query);
    const found = withEmail.all({ email_key: emailKey(email) });
    const rows = found.filter(({ id }) => isAfter(id, query)).slice(offset);
    return { meta: { total: found.length }, rows };
  };
}

export function createUserStore(context: StoreContext): UserStore {
  const { db, timestamp, recordChange } = context;
  const { list, get, createOnce, modify } = prepareRecords<User, UserQuery, StoredUser>(
    context,
    User,
    {
      table: "users",
      prepareRows,
    },
  );
  const insert = db.prepare<null, UserRow & { now: string }>(`
    insert into users (email, email_key, name, metadata, version, created_at, updated_at)
    values ($email, $email_key, $name, $metadata, 1, $now, $now)
    on conflict (email_key) do nothing
  `);
  // A separate query, because "update or ignore" would also hide a violated CHECK.
  const otherUserWithEmail = db.prepare<{ id: number }, { email_key: string; id: number }>(`
    select id
    from users
    where email_key = $email_key and id <> $id
  `);
  // A separate statement, because SQLite rewrites an index whenever one of its columns is set, even to the same value.
  const updateEmail = db.prepare<null, UserRow & { id: number }>(`
    update users
    set email = $email,
      email_key = $email_key
    where id = $id
  `);
  const updateUser = db.prepare<null, StoredUser>(`
    update users
    set name = $name,
      metadata = $metadata,
      version = $version,
      updated_at = $updated_at
    where id = $id
  `);
  const deleteWithoutOrders = db.prepare<null, { id: number }>(`
    delete from users
    where id = $id and not exists (select 1 from orders where user_id = $id)
  `);

  return {
    list,
    get,

    create(fields, key, author = null) {
      return createOnce(key, author, () => {
        const time = timestamp();
        const row = userRow(fields);
        const { changes, lastInsertRowid } = insert.run({ ...row, now: time });
        if (changes === 0) failEmailTaken();
        const user = newUser(Number(lastInsertRowid), row, time);
        recordChange(changeOf("user.created", user, author));
        return recordText(user, userJson);
      });
    },

    update(id, edit, preconditions, author = null) {
      return modify(id, preconditions, author, (user) => {
        const before = parseStoredUser(user);
        const fields = edit(before);
        if (changesNothing(before, fields)) return recordText(user, userJson);
        const row = userRow(fields);
        if (row.email !== user.email) {
          if (otherUserWithEmail.get({ email_key: row.email_key, id }) !== null) failEmailTaken();
          updateEmail.run({ ...row, id });
        }
        const updatedAt = latestOf(user.updated_at, timestamp());
        const changed = { ...user, ...row, version: user.version + 1, updated_at: updatedAt };
        updateUser.run(changed);
        recordChange(changeOf("user.updated", changed, author));
        return recordText(changed, userJson);
      });
    },

    remove(id, preconditions, author = null) {
      return modify(id, preconditions, author, (user) => {
        if (deleteWithoutOrders.run({ id }).changes === 0) failUserHasOrders();
        recordChange(changeOf("user.deleted", user, author));
        return recordText(user, userJson);
      });
    },
  };
}
