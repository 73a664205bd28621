import { latestOf } from "../clock.ts";
import { isBehind, type Page } from "../page.ts";
import { requirePreconditions } from "../precondition.ts";
import {
  type Author,
  type RecordText,
  recordText,
  reserveNothing,
  reserveText,
} from "../record.ts";
import {
  emailKey,
  failEmailTaken,
  failUserHasOrders,
  newUser,
  parseStoredUser,
  type StoredUser,
  type User,
  type UserFields,
  type UserQuery,
  type UserRow,
  type UserStore,
  userJson,
  userRow,
} from "../user.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import type { Create, CreateRules } from "./create-queue.ts";
import { prepareCreate } from "./creates.ts";
import { isForeignKeyViolation, sqlState, UNIQUE_VIOLATION } from "./errors.ts";
import { prepareList, type ReadPage } from "./lists.ts";
import { prepareLookup } from "./lookups.ts";
import { noStatus, recordStatement } from "./outbox.ts";
import { versionConflict } from "./retry.ts";
import { type LockWait, lockedColumn, lockingStatement, waitFor } from "./row-locks.ts";
import type { UpdateWork } from "./updates.ts";

/** Integers are read as doubles, which represent every integer of the API exactly. Bun.SQL returns int8 as text. */
export const columns =
  "id::float8 as id, email, name, metadata, version::float8 as version, created_at, updated_at";

export function toRecord(row: StoredUser): RecordText<User> {
  return recordText(row, userJson);
}

/** Identifies the row of a user among those that writes wait for. */
export function userRecord(id: number): string {
  return `users ${id}`;
}

/** How users are created. */
export const userCreates: CreateRules<UserRow> = {
  conflictKeysOf: ({ email_key }) => [email_key],
  lockOf: ({ email_key }) => email_key,
  sizeOf: ({ metadata }) => metadata.length,
  throwRejected: failEmailTaken,
};

/** @returns a page of the list of the users with one email: one user at most */
function pageOfUser(user: RecordText<User> | null, query: UserQuery): Page {
  const isOnPage = user !== null && isBehind(user.id, query) && query.offset === 0;
  return {
    records: isOnPage ? user.json : "",
    total: user === null ? 0 : 1,
    nextAfter: null,
  };
}

/** A user as JSON, from the columns of its table. */
export const json = `
  format(
    '{"id":%s,"email":%s,"name":%s,"metadata":%s,"version":%s,"created_at":"%s","updated_at":"%s"}',
    id, to_json(email), coalesce(to_json(name)::text, 'null'), metadata, version, created_at, updated_at
  )
`;

/** `$1` is an array of ids. */
export const existingUsers = `
  select id::float8 as id
  from users
  where id = any($1::bigint[])
`;
const selectById = `
  select ${columns}, ${lockedColumn}
  from users
  where id = $1
`;
const updateUserSql = lockingStatement(
  (condition) => `
  with
    updated as (
      update users
      set email = $3, email_key = $4, name = $5, metadata = $6, version = version + 1, updated_at = $7
      where id = $1 and version = $2 and ${condition}
      returning ${columns}
    ),
    recorded as (${recordStatement({
      type: "user.updated",
      from: "updated",
      version: "version",
      status: noStatus,
      token: "$8",
      time: "$9",
    })})
  select *
  from updated
`,
);
const deleteUserSql = lockingStatement(
  (condition) => `
  with
    deleted as (
      delete from users
      where id = $1 and version = $2 and ${condition}
      returning id, version
    ),
    recorded as (${recordStatement({
      type: "user.deleted",
      from: "deleted",
      version: "version",
      status: noStatus,
      token: "$3",
      time: "$4",
    })})
  select id
  from deleted
`,
);

/** A write of one record, as it is executed. */
export interface Write {
  readonly author: Author;
  readonly time: Date;
  readonly wait: LockWait;
}

/** @returns the updated user */
async function updateUser(
  session: Session,
  user: StoredUser,
  fields: UserFields,
  { author, time, wait }: Write,
): Promise<StoredUser> {
  const { id, version } = user;
  const { email, email_key, name, metadata } = userRow(fields);
  const updatedAt = latestOf(time.toISOString(), user.updated_at);
  const values = [id, version, email, email_key, name, metadata, updatedAt, author, time.getTime()];
  try {
    const row = await session.first<StoredUser>(updateUserSql[wait], ...values);
    if (row === null) throw versionConflict;
    return row;
  } catch (error) {
    if (sqlState(error) === UNIQUE_VIOLATION) failEmailTaken();
    throw error;
  }
}

async function deleteUser(
  session: Session,
  { id, version }: StoredUser,
  { author, time, wait }: Write,
): Promise<void> {
  try {
    const values = [id, version, author, time.getTime()];
    const deleted = await session.first(deleteUserSql[wait], ...values);
    if (deleted === null) throw versionConflict;
  } catch (error) {
    if (isForeignKeyViolation(error)) failUserHasOrders();
    throw error;
  }
}

/** What depends on the layout. */
export interface UserLayout {
  readonly listAll: ReadPage;
  readonly create: Create<UserRow, User>;
  /** Runs the statements of an update or delete. Those of one user run one after the other. */
  readonly runUpdate: <Result>(id: number, work: UpdateWork<Result>) => Promise<Result>;
  /** Called after a user was deleted, in the session of the delete. */
  readonly onDelete?: (session: Session) => Promise<unknown>;
}

export function createUserStore(
  { db, now }: StoreContext,
  { listAll, create, runUpdate, onDelete }: UserLayout,
): UserStore {
  const withEmail = prepareLookup(db, { table: "users", key: "email_key", columns }, toRecord);

  return {
    async list(query: UserQuery, client) {
      const { email } = query;
      if (email === undefined) return listAll(query, client);
      return pageOfUser(await withEmail(emailKey(email), client), query);
    },

    get: prepareLookup(db, { table: "users", key: "id", columns }, toRecord),

    create: (fields, key, author = null) => create(userRow(fields), key, author),

    update(id, edit, preconditions, author = null, reserve = reserveNothing) {
      return runUpdate(id, async (session, wait) => {
        const row = await session.first<StoredUser & { locked: boolean }>(selectById, id);
        if (row === null) return null;
        const { locked, ...user } = row;
        requirePreconditions(user, preconditions);
        reserveText(user.metadata, reserve);
        const fields = edit(parseStoredUser(user));
        // Another transaction can have inserted a new email.
        const mayWait = locked || fields.email !== user.email;
        const write = { author, time: now(), wait: waitFor(mayWait, wait) };
        return toRecord(await updateUser(session, user, fields, write));
      });
    },

    remove(id, preconditions, author = null, reserve = reserveNothing) {
      return runUpdate(id, async (session, wait) => {
        const user = await session.first<StoredUser>(selectById, id);
        if (user === null) return null;
        requirePreconditions(user, preconditions);
        reserveText(user.metadata, reserve);
        await deleteUser(session, user, { author, time: now(), wait });
        await onDelete?.(session);
        return toRecord(user);
      });
    },
  };
}

export function createPlainUserStore(context: StoreContext): UserStore {
  const { db, largePages, runUpdate } = context;
  return createUserStore(context, {
    listAll: prepareList(db, largePages, { table: "users", json, filters: [] }),
    create: prepareCreate(context, {
      table: "users",
      columns: { email: "text", email_key: "text", name: "text", metadata: "text" },
      rejected: "(select users.id from users where users.email_key = input.email_key) is not null",
      lock: null,
      created: "user.created",
      status: noStatus,
      json,
      order: 'email_key collate "C"',
      ...userCreates,
      newRecord: (id, fields, time) => toRecord(newUser(id, fields, time)),
    }),
    runUpdate: (id, work) => runUpdate(userRecord(id), work),
  });
}
