import type { Database } from "bun:sqlite";
import { emailKey } from "../../base/email.ts";
import { fail } from "../../base/error.ts";
import { User, type UserQuery, type UserRow, type UserStore, userRow } from "../../domain/user.ts";
import { NEXT_CHANGE } from "./changes.ts";
import { prepareList } from "./lists.ts";
import * as records from "./records.ts";

function prepareRows(db: Database, columns: string) {
  const readAll = prepareList(db, columns, { table: "users", ofUser: false, statuses: [] });

  return (query: UserQuery): records.ListRows => {
    const { id, reference, email } = query;
    if (id === undefined && reference === undefined && email === undefined) return readAll(query);
    const key = email === undefined ? undefined : emailKey(email);
    return records.readFew(db, "users", columns, { id, reference, email_key: key }, query);
  };
}

function prepareRequireValid(db: Database): (row: UserRow, id: number | null) => void {
  const idOf = records.prepareIdOf(db, "users");
  return ({ email_key, reference }, id) => {
    if ((idOf(["email", email_key]) ?? id) !== id) fail("email_taken");
    if (reference !== null && (idOf(["reference", reference]) ?? id) !== id)
      fail("reference_taken");
  };
}

export function prepareUserUpdate({ db, noteChange }: records.StoreContext): records.Update<User> {
  const requireValid = prepareRequireValid(db);
  // A separate statement, because SQLite rewrites an index whenever one of its columns is set, even to the same value.
  const updateUnique = records.prepareUpdate(db, "users", "email", "email_key", "reference");
  const columns = ["name", "metadata", "version", "last_change", "updated_at"];
  const update = records.prepareUpdate(db, "users", ...columns);

  return (before, after, fields, author) => {
    const { id } = before;
    const row = userRow(after);
    if (row.email !== before.email || row.reference !== before.reference) {
      requireValid(row, id);
      updateUnique.run(row.email, row.email_key, row.reference, id);
    }
    const change = noteChange("user.updated", after, author, fields);
    update.run(row.name, row.metadata, after.version, change, after.updated_at, id);
  };
}

export function createUserStore(context: records.StoreContext): UserStore {
  const { db, idempotency, noteChange } = context;
  const insert = db.prepare<null, (string | null)[]>(`
    insert into users (email, email_key, reference, name, metadata, version, last_change, created_at, updated_at)
    values (?1, ?2, ?3, ?4, ?5, 1, ${NEXT_CHANGE}, ?6, ?6)
  `);
  const { store, write, find } = records.createRecordStore(context, {
    table: "users",
    schema: User,
    created: "user.created",
    prepareRows,
    rowOf: userRow,
    requireValid: prepareRequireValid(db),
    insert: ({ email, email_key, reference, name, metadata }, now) =>
      insert.run(email, email_key, reference, name, metadata, now),
    update: prepareUserUpdate(context),
  });
  const orderOf = db.prepare("select 1 from orders where user_id = ? limit 1");
  const remove = db.prepare<null, [id: number]>("delete from users where id = ?");

  return {
    ...store,
    remove: (id, preconditions, key = null, author = null) =>
      write(key, author, () => {
        const user = find(id, preconditions);
        if (user === null) return null;
        if (orderOf.get(id) !== null) fail("user_has_orders");
        noteChange("user.deleted", user, author);
        remove.run(id);
        idempotency.forgetUser(id);
        return user;
      }),
  };
}
