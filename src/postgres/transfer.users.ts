import { created, known, refused, refuseLeap, type Transfer } from "../transfer.ts";
import {
  createdUser,
  emailKey,
  type StoredUser,
  type User,
  type UserFields,
  type UserImport,
} from "../user.ts";
import type { Database, Session } from "./connection.ts";
import { type Copy, createTransfer, digest, type Ids, type Taker } from "./transfer.ts";
import { columns, fromRow } from "./users.ts";

const page = `
  select ${columns}
  from users
  where id > $1
  order by users.id
  limit $2
`;
const with_ids_or_emails = `
  select ${columns}
  from users
  where id = any($1::bigint[]) or email_key = any($2::text[])
`;

/** What tells a user from another. */
interface Seen {
  readonly id: number;
  readonly whole: bigint;
  /** Of what a client may set. */
  readonly fields: bigint;
}

function see(user: User): Seen {
  const { id, email, name, metadata } = user;
  return {
    id,
    whole: digest(user),
    fields: digest({ email, name, metadata } satisfies UserFields),
  };
}

/** Users by what may be there once only. */
function createIndex() {
  const ids = new Map<number, Seen>();
  const emails = new Map<string, Seen>();
  return {
    ids,
    emails,
    add(user: User): Seen {
      const seen = see(user);
      ids.set(user.id, seen);
      emails.set(emailKey(user.email), seen);
      return seen;
    },
  };
}

function createTaker(now: () => Date): Taker<UserImport> {
  const taken = createIndex();
  let stored = createIndex();
  const users: Copy = {
    into: "users (id, email, email_key, name, metadata, version, created_at, updated_at)",
    rows: [],
  };

  function toUser(record: UserImport, ids: Ids): User {
    return "id" in record ? record : createdUser(ids.last() + 1, record, now().toISOString());
  }

  return {
    copies: [users],

    async prepare(session: Session, records) {
      const ids = records.flatMap((record) => ("id" in record ? [record.id] : []));
      const emails = records.map(({ email }) => emailKey(email));
      stored = createIndex();
      const rows = await session.all<StoredUser>(with_ids_or_emails, ids, emails);
      for (const row of rows) stored.add(fromRow(row));
    },

    take(record, ids) {
      const user = toUser(record, ids);
      const { id, email, name, metadata, version, created_at, updated_at } = user;
      const email_key = emailKey(email);
      const there = "id" in record ? (taken.ids.get(id) ?? stored.ids.get(id)) : undefined;
      if (there !== undefined) {
        return there.whole === see(user).whole
          ? known
          : refused(`user ${id} is there already, and not the same`);
      }
      const holder = taken.emails.get(email_key) ?? stored.emails.get(email_key);
      if (holder !== undefined) {
        if (!("id" in record) && holder.fields === see(user).fields) return known;
        return refused(`email is already taken by user ${holder.id}`);
      }
      const leap = refuseLeap(id, ids.last());
      if (leap !== null) return leap;
      taken.add(user);
      users.rows.push([
        id,
        email,
        email_key,
        name,
        JSON.stringify(metadata),
        version,
        created_at,
        updated_at,
      ]);
      ids.give(id);
      return created;
    },
  };
}

export function createUserTransfer(db: Database, now: () => Date): Transfer<User, UserImport> {
  return createTransfer(db, {
    table: "users",
    page,
    fromRow,
    createTaker: () => createTaker(now),
  });
}
