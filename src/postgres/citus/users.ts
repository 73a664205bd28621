/**
 * Users are on every node. A write of a user is a transaction on all of them. Citus runs such transactions one at a
 * time.
 */
import { emailKey } from "../../email.ts";
import { newUser, type StoredUser, User, type UserStore } from "../../user.ts";
import { columnDefinitions, columnTypes } from "../columns.ts";
import type { StoreContext } from "../context.ts";
import { isUniqueViolation } from "../errors.ts";
import { recordCreated } from "../outbox.ts";
import { createUserStore, json, toRecord, userCreates, userUpdates } from "../users.ts";
import { valuesFrom } from "./columns.ts";
import { prepareCitusCreate } from "./creates.ts";
import { prepareCitusList } from "./lists.ts";

/** First number of the advisory locks on users; the second is derived from the id. */
const USER_LOCK = 0x75736572;

const userColumns = { ...columnTypes(User), email_key: "text" };
const names = Object.keys(userColumns).join(", ");

// Without `on conflict`, which Citus performs one after the other on a table that is on every server.
const insertUser = `
  insert into users (${names})
  values (${valuesFrom("$1", userColumns)})
`;
const insertUsers = `
  insert into users (${names})
  select ${names}
  from json_to_recordset($1::text::json) as input (${columnDefinitions(userColumns)})
`;
const takenEmails = `
  select email_key
  from users
  where email_key = any($1::text[])
`;
/** Changes the number of users by `$1`. */
export const addToTotal = `
  update user_totals
  set users = users + $1
  where slot = pg_backend_pid() % 16
`;
const lockUser = "select pg_advisory_xact_lock($1, $2)";

function withEmailKey(user: StoredUser) {
  return { ...user, email_key: emailKey(user.email) };
}

export function createCitusUserStore(context: StoreContext): UserStore {
  return createUserStore(context, {
    listAll: prepareCitusList(context, {
      table: "users",
      json,
      where: "",
      total: "select coalesce(sum(users), 0)::bigint as total from user_totals",
      valuesOf: null,
      maxOffset: null,
    }),

    create: prepareCitusCreate(context, {
      table: "users",
      ...userCreates,
      async findRejected(session, allFields) {
        const keys = allFields.map(({ email_key }) => email_key);
        const rows = await session.all<{ email_key: string }>(takenEmails, keys);
        const taken = new Set(rows.map(({ email_key }) => email_key));
        return keys.map((key) => taken.has(key));
      },
      newRecord: (id, fields, time): StoredUser => newUser(id, fields, time),
      toRecord,
      async insertOne(session, created, time) {
        await session.all(insertUser, JSON.stringify(withEmailKey(created.record)));
        await session.all(addToTotal, 1);
        await recordCreated(session, "user.created", [created], time);
      },
      async insertMany(session, created, time) {
        const rows = created.map(({ record }) => withEmailKey(record));
        await session.all(insertUsers, JSON.stringify(rows));
        await session.all(addToTotal, rows.length);
        await recordCreated(session, "user.created", created, time);
      },
      async explainViolation(error) {
        if (!isUniqueViolation(error)) throw error;
        return { kind: "rejected" };
      },
    }),

    updates: {
      ...userUpdates,
      transaction: true,
      async read(session, ids) {
        // Without the lock, the second of two concurrent updates would be repeated, and each attempt is a transaction on
        // all servers.
        for (const id of ids) await session.all(lockUser, USER_LOCK, id % 2 ** 31);
        return userUpdates.read(session, ids);
      },
      async remove(session, targets, lockTimeout) {
        const removed = await userUpdates.remove(session, targets, lockTimeout);
        await session.all(addToTotal, -removed.length);
        return removed;
      },
    },
  });
}
