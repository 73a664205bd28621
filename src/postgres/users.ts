import type { PostgresLayout } from "../database-url.ts";
import { fail } from "../error.ts";
import type { LargePages } from "../large-page.ts";
import { requirePreconditions } from "../precondition.ts";
import {
  emailKey,
  type StoredUser,
  type User,
  type UserFields,
  type UserQuery,
  type UserStore,
  userJson,
} from "../user.ts";
import type { Database, Session } from "./connection.ts";
import { isForeignKeyViolation, sqlState, UNIQUE_VIOLATION } from "./errors.ts";
import type { IdempotencyStore } from "./idempotency.ts";
import { type ListSource, listStatements, readPage, total_queries } from "./lists.ts";
import { retryOnConflict, version_conflict } from "./retry.ts";

/** Integers are read as doubles, which represent every integer of the API exactly. Bun.SQL returns int8 as text. */
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

const select_by_email = `
  select ${columns}
  from users
  where email_key = $1
`;
const select_by_id = `
  select ${columns}
  from users
  where id = $1
`;
const insert_user = `
  insert into users (email, email_key, name, metadata, version, created_at, updated_at)
  values ($1, $2, $3, $4, 1, $5, $5)
  on conflict (email_key) do nothing
  returning ${columns}
`;
const update_user = `
  update users
  set email = $3, email_key = $4, name = $5, metadata = $6, version = version + 1,
    updated_at = greatest(updated_at collate "C", $7)
  where id = $1 and version = $2
  returning ${columns}
`;
const delete_user = `
  delete from users
  where id = $1 and version = $2
  returning id::float8 as id
`;

function failEmailTaken(): never {
  fail("email_taken", "email is already taken");
}

async function find(session: Session, id: number): Promise<User | null> {
  const row = await session.first<StoredUser>(select_by_id, id);
  return row && fromRow(row);
}

export function createUserStore(
  db: Database,
  idempotency: IdempotencyStore,
  layout: PostgresLayout,
  large_pages: LargePages,
  now: () => Date,
): UserStore {
  const all: ListSource<StoredUser> = {
    statements: listStatements({
      columns,
      table: "users",
      where: "",
      total: total_queries[layout].users,
    }),
    filters: [],
    toJson: userJson,
  };

  async function create(session: Session, fields: UserFields): Promise<User> {
    const { email, name, metadata } = fields;
    const email_key = emailKey(email);
    // Checked first, because an insert consumes an id even if it conflicts.
    if ((await session.first(select_by_email, email_key)) !== null) failEmailTaken();
    const row = await session.first<StoredUser>(
      insert_user,
      email,
      email_key,
      name,
      JSON.stringify(metadata),
      now().toISOString(),
    );
    return row === null ? failEmailTaken() : fromRow(row);
  }

  /** @returns the updated row; `null` if the version has changed */
  async function updateUser(session: Session, { id, version }: User, fields: UserFields) {
    const { email, name, metadata } = fields;
    try {
      return await session.first<StoredUser>(
        update_user,
        id,
        version,
        email,
        emailKey(email),
        name,
        JSON.stringify(metadata),
        now().toISOString(),
      );
    } catch (error) {
      if (sqlState(error) === UNIQUE_VIOLATION) failEmailTaken();
      throw error;
    }
  }

  return {
    list(query: UserQuery) {
      const { offset, after = 0, email } = query;
      if (email === undefined) return readPage(db, large_pages, all, query);
      return db.read(async (session) => {
        const rows = await session.all<StoredUser>(select_by_email, emailKey(email));
        const page = rows.filter(({ id }) => id > after).slice(offset);
        return { records: page.map(userJson).join(","), total: rows.length, next_after: null };
      });
    },

    get: (id) => db.read((session) => find(session, id)),

    create: (fields, key) => idempotency.once(key, (session) => create(session, fields)),

    update(id, edit, accepted) {
      return db.write((session) =>
        retryOnConflict(async () => {
          const user = await find(session, id);
          if (user === null) return null;
          requirePreconditions(user, accepted);
          const fields = edit(user);
          if (fields === null) return user;
          const row = await updateUser(session, user, fields);
          return row === null ? version_conflict : fromRow(row);
        }),
      );
    },

    remove(id, accepted) {
      return db.write((session) =>
        retryOnConflict(async () => {
          const user = await find(session, id);
          if (user === null) return null;
          requirePreconditions(user, accepted);
          try {
            const erased = await session.first(delete_user, id, user.version);
            return erased === null ? version_conflict : user;
          } catch (error) {
            if (isForeignKeyViolation(error)) fail("user_has_orders", "user has orders");
            throw error;
          }
        }),
      );
    },
  };
}
