import type { Database } from "bun:sqlite";
import { emailKey } from "../../base/email.ts";
import { systemCode } from "../../base/error.ts";
import { type Author, changesNothing, nextVersion, type RecordText } from "../../domain/record.ts";
import { failReferenceTaken } from "../../domain/reference.ts";
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
import { checked, prepareRecords, readFew } from "./records.ts";

/** Reads the list of all users, or of those that filters name. */
function prepareRows(db: Database, columns: string) {
  const readAll = prepareCountedList(db, "users", columns);

  return (query: UserQuery): ListRows => {
    const { id, reference, email } = query;
    if (id === undefined && reference === undefined && email === undefined) return readAll(query);
    const key = email === undefined ? undefined : emailKey(email);
    return readFew(db, "users", columns, { id, reference, email_key: key }, query);
  };
}

/** @returns a function that throws {AppError} email_taken or reference_taken by another user than the one with the id */
function prepareRequireValid(db: Database): (row: UserRow, id: number | null) => void {
  const owners = db.prepare<{ email: number | null; reference: number | null }, UserRow>(`
    select
      (select id from users where email_key = $email_key) as email,
      (select id from users where reference = $reference) as reference
  `);

  return (row, id) => {
    const { email, reference } = owners.get(row) ?? { email: null, reference: null };
    if (email !== null && email !== id) failEmailTaken();
    if (reference !== null && reference !== id) failReferenceTaken();
  };
}

/** @returns a function that writes what has changed of a user, and the change. It throws as `prepareRequireValid` */
export function prepareUserUpdate({ db, noteChange }: StoreContext) {
  const requireValid = prepareRequireValid(db);
  // A separate statement, because SQLite rewrites an index whenever one of its columns is set, even to the same value.
  const updateUnique = db.prepare<null, UserRow & { id: number }>(`
    update users
    set email = $email,
      email_key = $email_key,
      reference = $reference
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

  return (before: User, after: User, author: Author): void => {
    const { id } = before;
    const row = userRow(after);
    if (row.email !== before.email || row.reference !== before.reference) {
      requireValid(row, id);
      updateUnique.run({ ...row, id });
    }
    updateUser.run({ ...after, ...row });
    noteChange("user.updated", after, author);
  };
}

export function createUserStore(context: StoreContext): UserStore {
  const { db, timestamp, writer, idempotency, noteChange } = context;
  const table = "users";
  const parts = { table, schema: User, prepareRows } as const;
  const { list, get, textOf } = prepareRecords<User, UserQuery>(context, parts);
  const requireValid = prepareRequireValid(db);
  const updateStored = prepareUserUpdate(context);
  const insert = db.prepare<null, (string | null)[]>(`
    insert into users (email, email_key, reference, name, metadata, version, created_at, updated_at)
    values (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6)
  `);
  const deleteWithoutOrders = db.prepare<null, { id: number }>(`
    delete from users
    where id = $id and not exists (select 1 from orders where user_id = $id)
  `);

  /** `on conflict do nothing` would use up an id, and "or ignore" hide a violated CHECK. @returns the id of the new user */
  function insertRow(row: UserRow): number {
    const { email, email_key, reference, name, metadata } = row;
    try {
      const { lastInsertRowid } = insert.run(
        email,
        email_key,
        reference,
        name,
        metadata,
        timestamp(),
      );
      return Number(lastInsertRowid);
    } catch (error) {
      if (systemCode(error) === "SQLITE_CONSTRAINT_UNIQUE") requireValid(row, null);
      throw error;
    }
  }

  function insertUser(fields: UserFields, author: Author): RecordText<User> {
    const id = insertRow(userRow(fields));
    noteChange("user.created", { id, version: 1 }, author);
    return textOf(id);
  }

  return {
    list,
    get,

    create(fields, key, author = null) {
      const create = () => insertUser(fields, author);
      return writer.write(table, () => idempotency.once(key, table, create), author);
    },

    update(id, edit, preconditions, key = null, author = null) {
      const update = () => {
        const text = checked(textOf(id), preconditions);
        if (text === null) return null;
        const user = JSON.parse(text.json) as User;
        const fields = edit(user);
        if (changesNothing(user, fields)) return text;
        updateStored(user, nextVersion<User>(user, fields, timestamp()), author);
        return textOf(id);
      };
      return writer.write(table, () => idempotency.once(key, table, update), author);
    },

    remove(id, preconditions, key = null, author = null) {
      const remove = () => {
        const user = checked(textOf(id), preconditions);
        if (user === null) return null;
        if (deleteWithoutOrders.run({ id }).changes === 0) failUserHasOrders();
        idempotency.forgetUser(id);
        noteChange("user.deleted", user, author);
        return user;
      };
      return writer.write(table, () => idempotency.once(key, table, remove), author);
    },
  };
}
