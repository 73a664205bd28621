import { type BulkStore, checkIdGap, created, rejected, unchanged } from "../import.ts";
import {
  emailKey,
  newUser,
  type StoredUser,
  type User,
  type UserFields,
  type UserImport,
} from "../user.ts";
import type { Database, Session } from "./connection.ts";
import {
  type CopyBuffer,
  createBulkStore,
  digest,
  type IdTracker,
  type Importer,
} from "./import.ts";
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

/** Hashes for comparing users. */
interface UserDigest {
  readonly id: number;
  readonly full: bigint;
  /** Of the fields that a client can set. */
  readonly fields: bigint;
}

function digestUser(user: User): UserDigest {
  const { id, email, name, metadata } = user;
  return {
    id,
    full: digest(user),
    fields: digest({ email, name, metadata } satisfies UserFields),
  };
}

/** Look-ups of users by unique columns. */
function createIndex() {
  const ids = new Map<number, UserDigest>();
  const emails = new Map<string, UserDigest>();
  return {
    ids,
    emails,
    add(user: User): UserDigest {
      const digest = digestUser(user);
      ids.set(user.id, digest);
      emails.set(emailKey(user.email), digest);
      return digest;
    },
  };
}

function createImporter(now: () => Date): Importer<UserImport> {
  const accepted = createIndex();
  let stored = createIndex();
  const users: CopyBuffer = {
    into: "users (id, email, email_key, name, metadata, version, created_at, updated_at)",
    rows: [],
  };

  function toUser(record: UserImport, ids: IdTracker): User {
    return "id" in record ? record : newUser(ids.last() + 1, record, now().toISOString());
  }

  return {
    buffers: [users],

    async prepare(session: Session, records) {
      const ids = records.flatMap((record) => ("id" in record ? [record.id] : []));
      const emails = records.map(({ email }) => emailKey(email));
      stored = createIndex();
      const rows = await session.all<StoredUser>(with_ids_or_emails, ids, emails);
      for (const row of rows) stored.add(fromRow(row));
    },

    importOne(record, ids) {
      const user = toUser(record, ids);
      const { id, email, name, metadata, version, created_at, updated_at } = user;
      const email_key = emailKey(email);
      const existing = "id" in record ? (accepted.ids.get(id) ?? stored.ids.get(id)) : undefined;
      if (existing !== undefined) {
        return existing.full === digestUser(user).full
          ? unchanged
          : rejected(`user ${id} already exists with different values`);
      }
      const email_owner = accepted.emails.get(email_key) ?? stored.emails.get(email_key);
      if (email_owner !== undefined) {
        if (!("id" in record) && email_owner.fields === digestUser(user).fields) return unchanged;
        return rejected(`email is already taken by user ${email_owner.id}`);
      }
      const gap = checkIdGap(id, ids.last());
      if (gap !== null) return gap;
      accepted.add(user);
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
      ids.add(id);
      return created;
    },
  };
}

export function createUserBulkStore(db: Database, now: () => Date): BulkStore<User, UserImport> {
  return createBulkStore(db, {
    table: "users",
    page,
    fromRow,
    createImporter: () => createImporter(now),
  });
}
