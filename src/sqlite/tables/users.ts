import type { Changes, Database } from "bun:sqlite";
import { emailKey } from "../../base/email.ts";
import { systemCode } from "../../base/error.ts";
import { isAfter, type JsonRow } from "../../domain/page.ts";
import { type Author, changesNothing, latestOf, type RecordText } from "../../domain/record.ts";
import {
  failEmailTaken,
  failUserHasOrders,
  User,
  type UserFields,
  type UserQuery,
  type UserRow,
  type UserStore,
  userRow,
} from "../../domain/user.ts";
import type { StoreContext } from "./context.ts";
import { prepareCountedList } from "./counted-list.ts";
import type { ListRows } from "./lists.ts";
import { checked, prepareRecords } from "./records.ts";

/** Reads the list of all users, or of the one user with an email. */
function prepareRows(db: Database, columns: string) {
  const readAll = prepareCountedList(db, { table: "users", columns, where: "" });
  const withEmail = db.prepare<JsonRow, { email_key: string }>(`
    select ${columns}
    from users
    where email_key = $email_key
  `);

  return (query: UserQuery): ListRows => {
    const { offset, email } = query;
    if (email === undefined) return readAll("users", query);
    const found = withEmail.all({ email_key: emailKey(email) });
    const rows = found.filter(({ id }) => isAfter(id, query)).slice(offset);
    return { meta: { total: found.length }, rows };
  };
}

export function createUserStore(context: StoreContext): UserStore {
  const { db, timestamp, writer, idempotency, noteChange } = context;
  const table = "users";
  const parts = { table, schema: User, prepareRows } as const;
  const { list, get, textOf } = prepareRecords<User, UserQuery>(context, parts);
  const insert = db.prepare<null, (string | null)[]>(`
    insert into users (email, email_key, name, metadata, version, created_at, updated_at)
    values (?1, ?2, ?3, ?4, 1, ?5, ?5)
  `);
  // A separate statement, because SQLite rewrites an index whenever one of its columns is set, even to the same value.
  const updateEmail = db.prepare<null, UserRow & { id: number }>(`
    update users
    set email = $email,
      email_key = $email_key
    where id = $id
  `);
  const updateUser = db.prepare<null, UserRow & Pick<User, "id" | "version" | "updated_at">>(`
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

  /** Only the email is unique. `on conflict do nothing` would use up an id, and "or ignore" hide a violated CHECK. */
  function runUnlessTaken(run: () => Changes): Changes {
    try {
      return run();
    } catch (error) {
      if (systemCode(error) === "SQLITE_CONSTRAINT_UNIQUE") failEmailTaken();
      throw error;
    }
  }

  function insertUser(fields: UserFields, author: Author): RecordText<User> {
    const { email, email_key, name, metadata } = userRow(fields);
    const run = () => insert.run(email, email_key, name, metadata, timestamp());
    const id = Number(runUnlessTaken(run).lastInsertRowid);
    noteChange("user.created", { id, version: 1 }, author);
    return textOf(id);
  }

  function updateStored(user: User, fields: UserFields, author: Author): void {
    const { id } = user;
    const row = userRow(fields);
    if (row.email !== user.email) runUnlessTaken(() => updateEmail.run({ ...row, id }));
    const updatedAt = latestOf(user.updated_at, timestamp());
    const changed = { ...user, ...row, version: user.version + 1, updated_at: updatedAt };
    updateUser.run(changed);
    noteChange("user.updated", changed, author);
  }

  return {
    list,
    get,

    create(fields, key, author = null) {
      const create = () =>
        idempotency.find<User>(key) ?? idempotency.store(key, insertUser(fields, author));
      return writer.write(table, create, author);
    },

    update(id, edit, preconditions, author = null) {
      const update = () => {
        const text = checked(textOf(id), preconditions);
        if (text === null) return null;
        const user = JSON.parse(text.json) as User;
        const fields = edit(user);
        if (changesNothing(user, fields)) return text;
        updateStored(user, fields, author);
        return textOf(id);
      };
      return writer.write(table, update, author);
    },

    remove(id, preconditions, author = null) {
      const remove = () => {
        const user = checked(textOf(id), preconditions);
        if (user === null) return null;
        if (deleteWithoutOrders.run({ id }).changes === 0) failUserHasOrders();
        noteChange("user.deleted", user, author);
        return user;
      };
      return writer.write(table, remove, author);
    },
  };
}
