import { emailKey } from "../../base/email.ts";
import { fail } from "../../base/error.ts";
import type { RecordText } from "../../domain/record.ts";
import { User, type UserFields, type UserRow, type UserStore, userRow } from "../../domain/user.ts";
import type { StoreContext } from "../engine/context.ts";
import { type Session, selectWhere } from "../server/connection.ts";
import { ownColumnTypes, recordText } from "./columns.ts";
import { prepareCreate } from "./creates.ts";
import { prepareFew, prepareList } from "./lists.ts";
import { createLookup } from "./lookups.ts";
import { type EditableTable, prepareRemoveUsers } from "./record-writes.ts";
import { taken } from "./rejections.ts";
import { prepareUpdates } from "./updates.ts";

const columns = recordText(User);

export const editableUsers: EditableTable<UserFields> = {
  table: "users",
  columns: { ...ownColumnTypes(User), email_key: "text" },
  valuesOf: userRow,
  updated: "user.updated",
};

const rejections = [
  taken("users", "email_key", "email_taken"),
  taken("users", "reference", "reference_taken"),
];

/** One user at a time: the orders of one are on one shard, and may be many. */
const anyOrderOfUser = `
  select id
  from orders
  where user_id = $1::bigint
  limit 1
`;

export function findUsers(session: Session, id: readonly number[]) {
  return selectWhere<RecordText<User>>(session, columns, "users", { id });
}

export function createUserStore(context: StoreContext): UserStore {
  const { db } = context;
  const get = createLookup<number, RecordText<User>>(db, {
    find: findUsers,
    keyOf: ({ id }) => id,
  });
  const listAll = prepareList(context, { table: "users", ofUser: false, status: null });
  const listFew = prepareFew(context, (session, filters) =>
    selectWhere(session, columns, "users", filters),
  );

  const create = prepareCreate<UserRow, User>(context, {
    table: "users",
    columns: editableUsers.columns,
    rejections,
    created: "user.created",
    schema: User,
    order: 'email_key collate "C"',
    conflictKeysOf: ({ email_key, reference }) => [
      email_key,
      ...(reference === null ? [] : [`reference ${reference}`]),
    ],
    lockOf: ({ email_key }) => email_key,
  });

  const write = prepareUpdates<User, UserFields>(context, {
    editable: editableUsers,
    read: findUsers,
    mayConflict: (edit, before) =>
      emailKey(edit.email) !== emailKey(before.email) || edit.reference !== before.reference,
    rejections,
    removal: {
      write: prepareRemoveUsers(context.placement),
      // Rather than by an error of the statement, which PostgreSQL would log.
      async requireFree(session, id) {
        if ((await session.first(anyOrderOfUser, id)) !== null) fail("user_has_orders");
      },
    },
  });

  return {
    async list(query, client, memory) {
      const { id, reference, email } = query;
      if (id === undefined && reference === undefined && email === undefined)
        return listAll(query, client, memory);
      const key = email === undefined ? undefined : emailKey(email);
      return listFew({ id, reference, email_key: key }, query, client, memory);
    },

    get,
    create: (fields, key, author = null) => create({ fields: userRow(fields), key, author }),
    update: (id, edit, preconditions, key = null, author = null) =>
      write({ id, edit, preconditions, key, author }),
    remove: (id, preconditions, key = null, author = null) =>
      write({ id, edit: null, preconditions, key, author }),
  };
}
