import type { BulkStore, ImportOptions } from "../../domain/bulk.ts";
import { changedFields, changeOf } from "../../domain/change.ts";
import { createPlanner } from "../../domain/import-plan.ts";
import type { ImportRules, StoredRecords, UniqueKey } from "../../domain/import-rules.ts";
import { orderImport, userImport } from "../../domain/import-rules.ts";
import type { Order } from "../../domain/order.ts";
import type { JsonRow } from "../../domain/page.ts";
import type { Store } from "../../domain/store.ts";
import type { User } from "../../domain/user.ts";
import type { StoreContext } from "../engine/context.ts";
import { type Session, selectWhere } from "../server/connection.ts";
import { mayRetryWrite } from "../server/errors.ts";
import type { Placement } from "../server/placement.ts";
import { runAgain } from "../server/retry.ts";
import { recordJson } from "../tables/columns.ts";
import { editableOrders } from "../tables/orders.ts";
import { changeColumns } from "../tables/outbox.ts";
import { type EditableTable, prepareUpdate } from "../tables/record-writes.ts";
import { editableUsers } from "../tables/users.ts";
import { lockIds, rowsOf } from "./rows.ts";

async function loadIds(session: Session, table: string, keys: readonly UniqueKey[]) {
  const found = new Map<string, number>();
  for (const field of ["reference", "email"] as const) {
    const values = keys.filter(([other]) => other === field).map(([, value]) => value);
    if (values.length === 0) continue;
    const column = field === "email" ? "email_key" : field;
    const select = `select ${column} as key, id from ${table} where ${column} = any($1::text[])`;
    const rows = await session.all<{ key: string; id: number }>(select, values);
    for (const { key, id } of rows) found.set(`${field} ${key}`, id);
  }
  return { ids: [...found.values()], idOf: (key: UniqueKey) => found.get(key.join(" ")) ?? null };
}

async function loadStored<Row extends User | Order, Import extends object>(
  session: Session,
  placement: Placement,
  { table, schema, keysOf, namedUserOf }: ImportRules<Row, Import>,
  records: readonly Import[],
): Promise<StoredRecords<Row>> {
  const ids = records.flatMap((record) => ("id" in record ? [Number(record.id)] : []));
  const known = await loadIds(session, placement.uniqueTables[table], records.flatMap(keysOf));
  const columns = `id, ${recordJson(schema)} as json`;
  const foundRows = await selectWhere<JsonRow>(session, columns, table, {
    id: [...ids, ...known.ids],
  });
  const rows = new Map(foundRows.map(({ id, json }) => [id, JSON.parse(json) as Row]));
  const named = records.map(namedUserOf).filter((user) => user !== null);
  const userIds = named.filter((user) => typeof user === "number");
  for (const row of rows.values()) if ("user_id" in row) userIds.push(row.user_id);
  const userKeys = named.filter((user) => typeof user === "object");
  const namedUsers = await loadIds(session, "users", userKeys);
  const users = await selectWhere<Pick<User, "id" | "email">>(session, "id, email", "users", {
    id: [...new Set([...userIds, ...namedUsers.ids])],
  });
  const emails = new Map(users.map(({ id, email }) => [id, email]));
  return {
    lastId: await rowsOf(session, placement).lastId(table),
    get: (id) => rows.get(id) ?? null,
    idOf: known.idOf,
    emailOf: (id) => emails.get(id) ?? null,
    userIdOf: namedUsers.idOf,
  };
}

function createBulkStore<Row extends User | Order, Import extends object>(
  { db, placement, now }: StoreContext,
  rules: ImportRules<Row, Import>,
  editable: EditableTable<Row>,
): BulkStore<Import> {
  const { table } = rules;
  // No key of an email is a number.
  const clearKeys = `
    update ${placement.uniqueTables[table]}
    set reference = null${table === "users" ? ", email_key = id::text" : ""}
    where id = any($1::bigint[])
  `;
  const update = prepareUpdate(placement, editable);
  const plan = createPlanner(rules, () => now().toISOString());

  async function importAll(session: Session, records: readonly Import[], options?: ImportOptions) {
    for (const statement of placement.beforeCopy) await session.script(statement);
    await session.script(lockIds(table, placement));
    const stored = await loadStored(session, placement, rules, records);
    const { results, created, updated, lastId } = plan(records, stored, options);
    // One can get the key of another: PostgreSQL compares the rows of a statement one by one.
    const moved = updated.filter(
      ({ before, after }) => !Bun.deepEquals(rules.keysOf(before), rules.keysOf(after)),
    );
    const movedIds = moved.map(({ before }) => before.id);
    if (movedIds.length > 0) await session.all(clearKeys, movedIds);
    const writes = updated.map(({ before, after }) => ({
      before,
      values: { ...editable.valuesOf(after), updated_at: after.updated_at },
      author: null,
      fields: changedFields(before, after),
    }));
    // First: a new record can have the key that another one gives up.
    if ((await update(session, writes, now())).size < writes.length) throw runAgain;
    const { write, advanceIds } = rowsOf(session, placement);
    await write(table, created.map(rules.toRow));
    await advanceIds(table, lastId);
    const time = { created_at: now().getTime() };
    const changes = created.map((row) => ({ ...changeOf(rules.created, row, null), ...time }));
    await session.insert("change_outbox", changeColumns.split(", "), changes);
    return results;
  }

  return {
    async import(records, options) {
      if (records.length === 0) return [];
      if (options?.dryRun) {
        const stored = await db.run("read", (session) =>
          loadStored(session, placement, rules, records),
        );
        return plan(records, stored, options).results;
      }
      return db.run("write", (session) => importAll(session, records, options), {
        // It waits for the writes that are running.
        lockTimeoutMs: 3_000,
        timeoutMs: Number.POSITIVE_INFINITY,
        // The user of an order may be deleted during the import.
        mayRetry: mayRetryWrite,
      });
    },
  };
}

export function createBulkStores(context: StoreContext): Store["bulk"] {
  return {
    users: createBulkStore(context, userImport, editableUsers),
    orders: createBulkStore(context, orderImport, editableOrders),
  };
}
