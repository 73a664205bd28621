import { fail } from "../error.ts";
import type { LargePages } from "../large-page.ts";
import type { PostgresLayout } from "../store.ts";
import {
  emailKey,
  type StoredUser,
  type User,
  type UserFields,
  type UserQuery,
  type UserStore,
  userJson,
} from "../user.ts";
import { requireVersion } from "../version.ts";
import { overtaken, untilNotOvertaken } from "./again.ts";
import type { Database, Session } from "./connection.ts";
import { isForeignKeyViolation, sqlState, UNIQUE_VIOLATION } from "./failures.ts";
import type { Keys } from "./keys.ts";
import { type List, listStatement, readPage, totals } from "./lists.ts";

/** Integers come as doubles, which hold all that the API shows; as int8 they would come as text. */
export const columns =
  "id::float8 as id, email, name, metadata, version::float8 as version, created_at, updated_at";

export function fromRow(row: StoredUser): User {
  return {
    id: row.id,
    email: row.email,
    name: row.name,
    metadata: JSON.parse(row.metadata),
    version: row.version,
    created_at: row.created_at,
    updated_at: row.updated_at,
  };
}

const with_email = `
  select ${columns}
  from users
  where email_key = $1
`;
const with_id = `
  select ${columns}
  from users
  where id = $1
`;
const insert = `
  insert into users (email, email_key, name, metadata, version, created_at, updated_at)
  values ($1, $2, $3, $4, 1, $5, $5)
  on conflict (email_key) do nothing
  returning ${columns}
`;
const change = `
  update users
  set email = $3, email_key = $4, name = $5, metadata = $6, version = version + 1,
    updated_at = greatest(updated_at collate "C", $7)
  where id = $1 and version = $2
  returning ${columns}
`;
const erase = `
  delete from users
  where id = $1 and version = $2
  returning id::float8 as id
`;

function failTaken(): never {
  fail("conflict", "email is already taken");
}

async function find(session: Session, id: number): Promise<User | null> {
  const row = await session.first<StoredUser>(with_id, id);
  return row && fromRow(row);
}

export function createUserStore(
  db: Database,
  keys: Keys,
  layout: PostgresLayout,
  large_pages: LargePages,
  now: () => Date,
): UserStore {
  const all: List<StoredUser> = {
    statement: listStatement({ columns, table: "users", where: "", total: totals[layout].users }),
    filters: [],
    toJson: userJson,
  };

  async function create(session: Session, fields: UserFields): Promise<User> {
    const { email, name, metadata } = fields;
    const email_key = emailKey(email);
    // The insert would use up an id before it sees the conflict.
    if ((await session.first(with_email, email_key)) !== null) failTaken();
    const row = await session.first<StoredUser>(
      insert,
      email,
      email_key,
      name,
      JSON.stringify(metadata),
      now().toISOString(),
    );
    return row === null ? failTaken() : fromRow(row);
  }

  /** @returns `null` when the version is another by now */
  async function store(session: Session, { id, version }: User, fields: UserFields) {
    const { email, name, metadata } = fields;
    try {
      return await session.first<StoredUser>(
        change,
        id,
        version,
        email,
        emailKey(email),
        name,
        JSON.stringify(metadata),
        now().toISOString(),
      );
    } catch (error) {
      if (sqlState(error) === UNIQUE_VIOLATION) failTaken();
      throw error;
    }
  }

  return {
    list(query: UserQuery) {
      const { offset, after = 0, email } = query;
      if (email === undefined) return readPage(db, large_pages, all, query);
      return db.read(async (session) => {
        const rows = await session.all<StoredUser>(with_email, emailKey(email));
        const page = rows.filter(({ id }) => id > after).slice(offset);
        return { records: page.map(userJson).join(","), total: rows.length, next_after: null };
      });
    },

    get: (id) => db.read((session) => find(session, id)),

    create: (fields, key) => keys.once(key, (session) => create(session, fields)),

    update(id, edit, accepted) {
      return db.change((session) =>
        untilNotOvertaken(async () => {
          const user = await find(session, id);
          if (user === null) return null;
          requireVersion(user, accepted);
          const fields = edit(user);
          if (fields === null) return user;
          const row = await store(session, user, fields);
          return row === null ? overtaken : fromRow(row);
        }),
      );
    },

    remove(id, accepted) {
      return db.change((session) =>
        untilNotOvertaken(async () => {
          const user = await find(session, id);
          if (user === null) return null;
          requireVersion(user, accepted);
          try {
            const erased = await session.first(erase, id, user.version);
            return erased === null ? overtaken : user;
          } catch (error) {
            if (isForeignKeyViolation(error)) fail("conflict", "user has orders");
            throw error;
          }
        }),
      );
    },
  };
}
