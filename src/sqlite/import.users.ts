import type { Database } from "bun:sqlite";
import { type BulkStore, checkIdGap, created, rejected, unchanged } from "../import.ts";
import { newUser, type StoredUser, type User, type UserImport } from "../user.ts";
import type { Connection } from "./connection.ts";
import type { IdTracker } from "./count-index.import.ts";
import { createBulkStore, type ImportOne, isSameJson } from "./import.ts";
import { columns, fromRow, toRow } from "./users.ts";

type NewRow = StoredUser & { readonly email_key: string };

/** Statements on a table of users: the stored one, or that of a dry run. */
function prepareUsers(db: Database, table: "users" | "tried_users") {
  const withId = db.prepare<StoredUser, { id: number }>(`
    select ${columns}
    from ${table}
    where id = $id
  `);
  const withEmail = db.prepare<StoredUser, { email_key: string }>(`
    select ${columns}
    from ${table}
    where email_key = $email_key
  `);
  const insert = db.prepare<null, NewRow>(`
    insert into ${table} (id, email, email_key, name, metadata, version, created_at, updated_at)
    values ($id, $email, $email_key, $name, $metadata, $version, $created_at, $updated_at)
  `);
  return { withId, withEmail, insert };
}
type UserStatements = ReturnType<typeof prepareUsers>;

const create_dry_run_tables = `
  create temp table tried_users (
    id integer primary key,
    email text not null,
    email_key text not null unique,
    name text,
    metadata text not null,
    version integer not null,
    created_at text not null,
    updated_at text not null
  ) strict
`;

function hasSameFields(row: StoredUser, { email, name, metadata }: NewRow): boolean {
  return row.email === email && row.name === name && isSameJson(row.metadata, metadata);
}

function isIdentical(row: StoredUser, given: NewRow): boolean {
  return (
    row.version === given.version &&
    row.created_at === given.created_at &&
    row.updated_at === given.updated_at &&
    hasSameFields(row, given)
  );
}

export function createUserBulkStore(connection: Connection): BulkStore<User, UserImport> {
  const { db, clock } = connection;
  const users = prepareUsers(db, "users");
  const page = db.prepare<StoredUser, { after: number; limit: number }>(`
    select ${columns}
    from users
    where id > $after
    order by id
    limit $limit
  `);

  function toNewRow(record: UserImport, ids: IdTracker): NewRow {
    const user = "id" in record ? record : newUser(ids.last() + 1, record, clock());
    const { id, version, created_at, updated_at } = user;
    return { ...toRow(user), id, version, created_at, updated_at };
  }

  /** @param into receives new users. Existing users are looked up in `users` as well. */
  function importInto(into: UserStatements): ImportOne<UserImport> {
    const tables = into === users ? [users] : [users, into];
    function find(lookUp: (table: UserStatements) => StoredUser | null): StoredUser | null {
      for (const table of tables) {
        const row = lookUp(table);
        if (row !== null) return row;
      }
      return null;
    }

    return (record, ids) => {
      const row = toNewRow(record, ids);
      const { id, email_key } = row;
      // No user has an id beyond the last one.
      const existing = id > ids.last() ? null : find(({ withId }) => withId.get({ id }));
      if (existing !== null) {
        return isIdentical(existing, row)
          ? unchanged
          : rejected(`user ${id} already exists with different values`);
      }
      const email_owner = find(({ withEmail }) => withEmail.get({ email_key }));
      if (email_owner !== null) {
        if (!("id" in record) && hasSameFields(email_owner, row)) return unchanged;
        return rejected(`email is already taken by user ${email_owner.id}`);
      }
      const gap = checkIdGap(id, ids.last());
      if (gap !== null) return gap;
      into.insert.run(row);
      ids.add(id, null);
      return created;
    };
  }

  return createBulkStore(connection, {
    table: "users",
    readPage: (after, limit) => page.all({ after, limit }).map(fromRow),
    openBatch: () => ({ importOne: importInto(users), finish() {} }),
    prepareDryRun() {
      db.run(create_dry_run_tables);
      return importInto(prepareUsers(db, "tried_users"));
    },
  });
}
