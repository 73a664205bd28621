import { emailKey } from "../../base/email.ts";
import { isAfter } from "../../domain/page.ts";
import type { RecordText } from "../../domain/record.ts";
import {
  failEmailTaken,
  failUserHasOrders,
  User,
  type UserFields,
  type UserQuery,
  type UserRow,
  type UserStore,
  userRow,
} from "../../domain/user.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session } from "../server/connection.ts";
import { isForeignKeyViolation, isUniqueViolation } from "../server/errors.ts";
import { ownColumnTypes, recordJson, recordText } from "./columns.ts";
import { prepareCreate } from "./creates.ts";
import { prepareList } from "./lists.ts";
import { createLookup } from "./lookups.ts";
import { prepareUpdates } from "./updates.ts";

const columns = recordText(User);
const writtenColumns = { ...ownColumnTypes(User), email_key: "text" };

const usersById = `select ${columns} from users where id = any($1::bigint[])`;
const usersByEmail = `select ${columns}, email_key from users where email_key = any($1::text[])`;
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
): Promise<readonly RecordText<User>[]> {
  return ids.length === 0 ? [] : session.all(usersById, ids);
}

export function createUserStore(context: StoreContext): UserStore {
  const { db } = context;
  const get = createLookup<number, RecordText<User>>(db, {
    find: findUsers,
    keyOf: ({ id }) => id,
  });
  const byEmail = createLookup<string, RecordText<User> & Pick<UserRow, "email_key">>(db, {
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
  });

  const hasOrders = async (session: Session, id: number) =>
    (await session.first(anyOrderOfUser, id)) !== null;

  const { update, remove } = prepareUpdates<User, UserFields>(context, {
    table: "users",
    read: findUsers,
    columns: writtenColumns,
    valuesOf: userRow,
    updated: "user.updated",
    // Another transaction can have inserted the email.
    mayWait: (edit, before) => emailKey(edit.email) !== emailKey(before.email),
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
        records: isOnPage ? user.json : "",
        total: user === null ? 0 : 1,
        nextAfter: null,
      };
    },

    get,
    create: (fields, key, author = null) => create(userRow(fields), key, author),
    update,
    remove,
  };
}
