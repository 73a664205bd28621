import type { Database } from "bun:sqlite";
import type { Clock } from "../clock.ts";
import { created, known, refused, refuseLeap, type Transfer } from "../transfer.ts";
import { createdUser, type StoredUser, type User, type UserImport } from "../user.ts";
import type { TableWriter } from "./commit.ts";
import type { Ids } from "./ids.ts";
import type { TableReader } from "./read.ts";
import { createTransfer, isSameJson, type Take } from "./transfer.ts";
import { columns, fromRow, toRow } from "./users.ts";

type NewRow = StoredUser & { readonly email_key: string };

/** The statements on one table of users. */
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
type Users = ReturnType<typeof prepareUsers>;

const tried_users = `
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

function isSame(row: StoredUser, given: NewRow): boolean {
  return (
    row.version === given.version &&
    row.created_at === given.created_at &&
    row.updated_at === given.updated_at &&
    hasSameFields(row, given)
  );
}

export function createUserTransfer(
  db: Database,
  reader: TableReader,
  writer: TableWriter,
  clock: Clock,
): Transfer<User, UserImport> {
  const users = prepareUsers(db, "users");
  const page = db.prepare<StoredUser, { after: number; limit: number }>(`
    select ${columns}
    from users
    where id > $after
    order by id
    limit $limit
  `);

  function toNewRow(record: UserImport, ids: Ids): NewRow {
    const user = "id" in record ? record : createdUser(ids.last() + 1, record, clock());
    const { id, version, created_at, updated_at } = user;
    return { ...toRow(user), id, version, created_at, updated_at };
  }

  /** @param into where new ones go; they are looked for in `users` as well */
  function takeInto(into: Users): Take<UserImport> {
    const places = into === users ? [users] : [users, into];
    function find(look: (place: Users) => StoredUser | null): StoredUser | null {
      for (const place of places) {
        const row = look(place);
        if (row !== null) return row;
      }
      return null;
    }

    return (record, ids) => {
      const row = toNewRow(record, ids);
      const { id, email_key } = row;
      // Beyond the last one there is nobody.
      const there = id > ids.last() ? null : find(({ withId }) => withId.get({ id }));
      if (there !== null) {
        return isSame(there, row)
          ? known
          : refused(`user ${id} is there already, and not the same`);
      }
      const holder = find(({ withEmail }) => withEmail.get({ email_key }));
      if (holder !== null) {
        if (!("id" in record) && hasSameFields(holder, row)) return known;
        return refused(`email is already taken by user ${holder.id}`);
      }
      const leap = refuseLeap(id, ids.last());
      if (leap !== null) return leap;
      into.insert.run(row);
      ids.give(id, null);
      return created;
    };
  }

  return createTransfer(db, reader, writer, {
    table: "users",
    walk: (after, limit) => page.all({ after, limit }).map(fromRow),
    open: () => ({ take: takeInto(users), finish() {} }),
    prepareTrial() {
      db.run(tried_users);
      return takeInto(prepareUsers(db, "tried_users"));
    },
  });
}
