import { fail } from "../error.ts";
import type { Page } from "../page.ts";
import { requirePreconditions } from "../precondition.ts";
import { type RecordText, recordText } from "../record.ts";
import {
  emailKey,
  newUser,
  parseStoredUser,
  type StoredUser,
  type User,
  type UserFields,
  type UserQuery,
  type UserStore,
  userJson,
} from "../user.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import type { CreateRules } from "./create-queue.ts";
import { prepareCreate } from "./creates.ts";
import { isForeignKeyViolation, sqlState, UNIQUE_VIOLATION } from "./errors.ts";
import { prepareList } from "./lists.ts";
import { prepareLookup } from "./lookups.ts";
import { version_conflict } from "./retry.ts";

/** Integers are read as doubles, which represent every integer of the API exactly. Bun.SQL returns int8 as text. */
export const columns =
  "id::float8 as id, email, name, metadata, version::float8 as version, created_at, updated_at";

export function toRecord(row: StoredUser): RecordText<User> {
  return recordText(row, userJson);
}

/** @returns the values of the columns that a client sets */
export function toRow({ email, name, metadata }: UserFields) {
  return { email, email_key: emailKey(email), name, metadata: JSON.stringify(metadata) };
}

/** How users are created. */
export const user_creates: CreateRules<ReturnType<typeof toRow>> = {
  conflictKeysOf: ({ email_key }) => [email_key],
  lockOf: ({ email_key }) => email_key,
  throwRejected: failEmailTaken,
};

/** @returns a page of the list of the users with one email: one user at most */
export function pageOfUser(user: RecordText<User> | null, { offset, after = 0 }: UserQuery): Page {
  const is_on_page = user !== null && user.id > after && offset === 0;
  return {
    records: is_on_page ? user.json : "",
    total: user === null ? 0 : 1,
    next_after: null,
  };
}

/** A user as JSON, from the columns of its table. */
export const json = `
  format(
    '{"id":%s,"email":%s,"name":%s,"metadata":%s,"version":%s,"created_at":"%s","updated_at":"%s"}',
    id, to_json(email), coalesce(to_json(name)::text, 'null'), metadata, version, created_at, updated_at
  )
`;

const select_by_id = `
  select ${columns}
  from users
  where id = $1
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

export function failEmailTaken(): never {
  fail("email_taken", "email is already taken");
}

/** Changes a user that a transaction has read. @returns the record for the response */
export type ChangeUser = (session: Session, user: StoredUser) => Promise<RecordText<User>>;

export function findUser(session: Session, id: number): Promise<StoredUser | null> {
  return session.first<StoredUser>(select_by_id, id);
}

export function createUserStore(context: StoreContext): UserStore {
  const { db, large_pages, now } = context;
  const withEmail = prepareLookup(db, { table: "users", key: "email_key", columns }, toRecord);
  const listAll = prepareList(db, large_pages, { table: "users", json, filters: [] });

  /** @returns the updated row; `null` if the version has changed */
  async function updateUser(session: Session, { id, version }: StoredUser, fields: UserFields) {
    const { email, email_key, name, metadata } = toRow(fields);
    try {
      return await session.first<StoredUser>(
        update_user,
        id,
        version,
        email,
        email_key,
        name,
        metadata,
        now().toISOString(),
      );
    } catch (error) {
      if (sqlState(error) === UNIQUE_VIOLATION) failEmailTaken();
      throw error;
    }
  }

  const create = prepareCreate(context, {
    table: "users",
    columns: { email: "text", email_key: "text", name: "text", metadata: "text" },
    rejected: "(select users.id from users where users.email_key = input.email_key) is not null",
    lock: null,
    json,
    order: 'email_key collate "C"',
    ...user_creates,
    toRecord: (id, fields, time) => toRecord(newUser(id, fields, time)),
  });

  function change(id: number, work: ChangeUser) {
    const change_user = async (session: Session) => {
      const user = await findUser(session, id);
      return user && work(session, user);
    };
    return db.run("write", change_user, { record: `users ${id}` });
  }

  return {
    async list(query: UserQuery) {
      const { email } = query;
      if (email === undefined) return listAll(query);
      return pageOfUser(await withEmail(emailKey(email)), query);
    },

    get: prepareLookup(db, { table: "users", key: "id", columns }, toRecord),

    create: (fields, key) => create(toRow(fields), key),

    update(id, edit, preconditions) {
      return change(id, async (session, user) => {
        requirePreconditions(user, preconditions);
        const fields = edit(parseStoredUser(user));
        if (fields === null) return toRecord(user);
        const row = await updateUser(session, user, fields);
        if (row === null) throw version_conflict;
        return toRecord(row);
      });
    },

    remove(id, preconditions) {
      return change(id, async (session, user) => {
        requirePreconditions(user, preconditions);
        try {
          const deleted = await session.first(delete_user, id, user.version);
          if (deleted === null) throw version_conflict;
        } catch (error) {
          if (isForeignKeyViolation(error)) fail("user_has_orders", "user has orders");
          throw error;
        }
        return toRecord(user);
      });
    },
  };
}
