import { latestOf } from "../clock.ts";
import { emailKey } from "../email.ts";
import { isAfter, type Page } from "../page.ts";
import { requirePreconditions } from "../precondition.ts";
import { changesNothing, type RecordText, recordText } from "../record.ts";
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
} from "../user.ts";
import { ownColumnTypes, recordJson, selectedColumns } from "./columns.ts";
import type { StoreContext } from "./context.ts";
import type { Create, CreateRules } from "./create-queue.ts";
import { prepareCreate } from "./creates.ts";
import { isForeignKeyViolation, isUniqueViolation } from "./errors.ts";
import { prepareList, type ReadPage } from "./lists.ts";
import { prepareRecordLookup } from "./lookups.ts";
import { noStatus } from "./outbox.ts";
import { createUpdateQueue, type UpdateParts } from "./update-queue.ts";
import { prepareDelete, prepareRead, prepareUpdate } from "./updates.ts";

const columns = selectedColumns(User);

/** What an update or delete reads. */
type ReadUser = StoredUser & Pick<UserRow, "email_key">;
/** What an update writes. */
type UserValues = UserRow & Pick<StoredUser, "updated_at">;

const writtenColumns = { ...ownColumnTypes(User), email_key: "text" };

export function toRecord(row: StoredUser): RecordText<User> {
  return recordText(row, userJson);
}

/** How users are created. */
export const userCreates: CreateRules<UserRow> = {
  conflictKeysOf: ({ email_key }) => [email_key],
  lockOf: ({ email_key }) => email_key,
  throwRejected: failEmailTaken,
};

/** @returns a page of the list of the users with one email: one user at most */
function pageOfUser(user: RecordText<User> | null, query: UserQuery): Page {
  const isOnPage = user !== null && isAfter(user.id, query) && query.offset === 0;
  return {
    records: isOnPage ? user.json : "",
    total: user === null ? 0 : 1,
    nextAfter: null,
  };
}

export const json = recordJson(User);

/** `$1` is an array of ids. */
export const existingUsers = `
  select id
  from users
  where id = any($1::bigint[])
`;
/** @throws {AppError} email_taken or user_has_orders, if a single write has violated a constraint */
function explainViolation(error: unknown): void {
  if (isUniqueViolation(error)) failEmailTaken();
  if (isForeignKeyViolation(error)) failUserHasOrders();
}

/** How users are updated and deleted. */
export const userUpdates = {
  table: "users",
  read: prepareRead<ReadUser>("users", `${columns}, email_key`),
  update: prepareUpdate<ReadUser, UserValues>({
    table: "users",
    values: { ...writtenColumns, updated_at: "text" },
    type: "user.updated",
    status: noStatus,
  }),
  remove: prepareDelete<ReadUser>({ table: "users", type: "user.deleted", status: noStatus }),
  explain: explainViolation,
} as const;

/** What depends on the layout. */
export interface UserLayout {
  readonly listAll: ReadPage;
  readonly create: Create<UserRow, User>;
  readonly updates: UpdateParts<ReadUser, UserValues>;
}

export function createUserStore(
  context: StoreContext,
  { listAll, create, updates }: UserLayout,
): UserStore {
  const users = { table: "users", schema: User } as const;
  const withEmail = prepareRecordLookup<string, StoredUser, User>(
    context.db,
    { ...users, key: "email_key" },
    toRecord,
  );
  const runUpdate = createUpdateQueue<ReadUser, UserValues, User>(context, updates);

  return {
    async list(query: UserQuery, client) {
      const { email } = query;
      if (email === undefined) return listAll(query, client);
      return pageOfUser(await withEmail(emailKey(email), client), query);
    },

    get: prepareRecordLookup(context.db, { ...users, key: "id" }, toRecord),

    create: (fields, key, author = null) => create(userRow(fields), key, author),

    update(id, edit, preconditions, author = null) {
      return runUpdate(id, author, ({ email_key, ...user }, time) => {
        requirePreconditions(user, preconditions);
        const before = parseStoredUser(user);
        const fields = edit(before);
        if (changesNothing(before, fields)) return { kind: "done", record: toRecord(user) };
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

export function createPlainUserStore(context: StoreContext): UserStore {
  return createUserStore(context, {
    listAll: prepareList(context, { table: "users", json, filters: [] }),
    create: prepareCreate(context, {
      table: "users",
      columns: writtenColumns,
      rejected: "(select users.id from users where users.email_key = input.email_key) is not null",
      created: "user.created",
      status: noStatus,
      json,
      order: 'email_key collate "C"',
      ...userCreates,
      newRecord: (id, fields, time) => toRecord(newUser(id, fields, time)),
    }),
    updates: userUpdates,
  });
}
