import { emailKey } from "../../base/email.ts";
import { latestOf } from "../../base/timestamp.ts";
import { isAfter } from "../../domain/page.ts";
import { requirePreconditions } from "../../domain/precondition.ts";
import { changesNothing, type RecordText, recordText } from "../../domain/record.ts";
import {
  failEmailTaken,
  failUserHasOrders,
  newUser,
  parseStoredUser,
  type StoredUser,
  User,
  type UserQuery,
  type UserRow,
  type UserStore,
  userJson,
  userRow,
} from "../../domain/user.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session } from "../server/connection.ts";
import { isForeignKeyViolation, isUniqueViolation } from "../server/errors.ts";
import { ownColumnTypes, recordJson, selectedColumns } from "./columns.ts";
import { prepareCreate } from "./creates.ts";
import { prepareList } from "./lists.ts";
import { createLookup } from "./lookups.ts";
import { prepareUpdates } from "./updates.ts";

type ReadUser = StoredUser & Pick<UserRow, "email_key">;
type UserValues = UserRow & Pick<StoredUser, "updated_at">;

const columns = selectedColumns(User);
const writtenColumns = { ...ownColumnTypes(User), email_key: "text" };

const selectUsers = `select ${columns}, email_key from users`;
const usersById = `${selectUsers} where id = any($1::bigint[])`;
const usersByEmail = `${selectUsers} where email_key = any($1::text[])`;
/** One user at a time: the orders of one are on one shard, and may be many. */
const anyOrderOfUser = `
  select id
  from orders
  where user_id = $1
  limit 1
`;

/** @returns the users with these ids that exist, in any order */
export async function findUsers(
  session: Session,
  ids: readonly number[],
): Promise<readonly ReadUser[]> {
  return ids.length === 0 ? [] : session.all(usersById, ids);
}

function toRecord(row: StoredUser): RecordText<User> {
  return recordText(row, userJson);
}

export function createUserStore(context: StoreContext): UserStore {
  const { db } = context;
  const byId = createLookup<number, ReadUser>(db, {
    find: findUsers,
    keyOf: ({ id }) => id,
  });
  const byEmail = createLookup<string, ReadUser>(db, {
    find: (session, keys) => session.all(usersByEmail, keys),
    keyOf: ({ email_key }) => email_key,
  });
  const listAll = prepareList(context, { table: "users", ofUser: false, status: null });

  const create = prepareCreate<UserRow, User>(context, {
    table: "users",
    columns: writtenColumns,
    rejected: "(select users.id from users where users.email_key = input.email_key) is not null",
    created: "user.created",
    json: recordJson(User),
    order: 'email_key collate "C"',
    conflictKeysOf: ({ email_key }) => [email_key],
    lockOf: ({ email_key }) => email_key,
    throwRejected: failEmailTaken,
    newRecord: (id, fields, time) => toRecord(newUser(id, fields, time)),
  });

  const hasOrders = async (session: Session, id: number) =>
    (await session.first(anyOrderOfUser, id)) !== null;

  const runUpdate = prepareUpdates<ReadUser, UserValues, User>(context, {
    table: "users",
    read: findUsers,
    values: { ...writtenColumns, updated_at: "text" },
    updated: "user.updated",
    removal: { type: "user.deleted", isBlocked: hasOrders, throwBlocked: failUserHasOrders },
    explain(error) {
      if (isUniqueViolation(error)) failEmailTaken();
      if (isForeignKeyViolation(error)) failUserHasOrders();
    },
  });

  return {
    async list(query: UserQuery, client) {
      const { email } = query;
      if (email === undefined) return listAll(query, client);
      const user = await byEmail(emailKey(email), client);
      const isOnPage = user !== null && isAfter(user.id, query) && query.offset === 0;
      return {
        records: isOnPage ? toRecord(user).json : "",
        total: user === null ? 0 : 1,
        nextAfter: null,
      };
    },

    async get(id, client) {
      const user = await byId(id, client);
      return user && toRecord(user);
    },

    create: (fields, key, author = null) => create(userRow(fields), key, author),

    update(id, edit, preconditions, author = null) {
      return runUpdate(id, author, ({ email_key, ...user }, time) => {
        requirePreconditions(user, preconditions);
        const before = parseStoredUser(user);
        const fields = edit(before);
        if (changesNothing(before, fields)) return { kind: "unchanged", record: toRecord(user) };
        const values = {
          ...userRow(fields),
          updated_at: latestOf(time.toISOString(), user.updated_at),
        };
        return {
          kind: "update",
          values,
          record: toRecord({ ...user, ...values, version: user.version + 1 }),
          // Another transaction can have inserted the email.
          mayWait: values.email_key !== email_key,
        };
      });
    },

    remove(id, preconditions, author = null) {
      return runUpdate(id, author, (user) => {
        requirePreconditions(user, preconditions);
        return { kind: "remove", record: toRecord(user) };
      });
    },
  };
}
