/** Import of users and orders. `import-plan.ts` and `import-rules.ts` of the domain have the rules. */

import type { BulkStore } from "../../domain/bulk.ts";
import type { ChangedRecord } from "../../domain/change.ts";
import {
  createImportPlanner,
  type ImportedTable,
  type StoredRecords,
} from "../../domain/import-plan.ts";
import { orderImport, userImport } from "../../domain/import-rules.ts";
import type { JsonRow } from "../../domain/page.ts";
import type { Store } from "../../domain/store.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session } from "../server/connection.ts";
import { isForeignKeyViolation, isRolledBack } from "../server/errors.ts";
import { recordJson } from "../tables/columns.ts";
import { noteImported } from "../tables/outbox.ts";
import { findUsers } from "../tables/users.ts";
import { rowWriterOf } from "./row-writer.ts";

const usersWithKeys = `
  select email_key as key, id
  from users
  where email_key = any($1::text[])
`;
const ordersWithKeys = `
  select import_key as key, order_id as id
  from imported_orders
  where import_key = any($1::text[])
`;

async function loadIds(
  session: Session,
  withKeys: string,
  keys: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  if (keys.length === 0) return new Map();
  const found = await session.all<{ key: string; id: number }>(withKeys, keys);
  return new Map(found.map(({ key, id }) => [key, id]));
}

function createBulkStore<Row extends ChangedRecord & { user_id?: number }, Import extends object>(
  { db, placement, now }: StoreContext,
  rules: ImportedTable<Row, Import>,
  idsWithKeys: string,
): BulkStore<Import> {
  const { table } = rules;
  const withIds = `
    select id, ${recordJson(rules.schema)} as json
    from ${table}
    where id = any($1::bigint[])
  `;
  const timestamp = () => now().toISOString();
  const planDryRun = createImportPlanner(rules, timestamp, true);

  /** Loads the records that the given ones can conflict with. */
  async function loadStored(
    session: Session,
    records: readonly Import[],
  ): Promise<StoredRecords<Row>> {
    const ids = records.flatMap((record) => ("id" in record ? [Number(record.id)] : []));
    const keys = records.map(rules.keyOf).filter((key) => key !== null);
    const named = [...new Set(records.map(rules.userOf))];
    const userIds = named.filter((user) => typeof user === "number");
    const userKeys = named.filter((user) => typeof user === "string");
    const lastId = await rowWriterOf(session, placement).lastId(table);
    const idsByKey = await loadIds(session, idsWithKeys, keys);
    const foundRows = await session.all<JsonRow>(withIds, [...ids, ...idsByKey.values()]);
    const rows = new Map(foundRows.map(({ id, json }) => [id, JSON.parse(json) as Row]));
    const usersByKey = await loadIds(session, usersWithKeys, userKeys);
    const users = new Set((await findUsers(session, userIds)).map(({ id }) => id));
    return {
      lastId,
      get: (id) => rows.get(id) ?? null,
      idOf: (key) => idsByKey.get(key) ?? null,
      hasUser: (id) => users.has(id),
      userWithEmail: (key) => usersByKey.get(key) ?? null,
    };
  }

  return {
    async import(records, dryRun) {
      if (records.length === 0) return [];
      if (dryRun) {
        const stored = await db.run("read", (session) => loadStored(session, records));
        return planDryRun(records, stored).results;
      }
      const work = async (session: Session) => {
        await session.script("set local statement_timeout = '60s'");
        for (const statement of placement.beforeCopy) await session.script(statement);
        // No other transaction assigns ids after it.
        await session.script(`lock table ${table} in share row exclusive mode`);
        const plan = createImportPlanner(rules, timestamp, false);
        const stored = await loadStored(session, records);
        const { results, newRecords, lastId } = plan(records, stored);
        const { write, advanceIds } = rowWriterOf(session, placement);
        for (const { table: into, toRow } of rules.inserts) {
          const rows = newRecords.map(toRow).filter((row) => row !== null);
          await write(into, rows);
        }
        await advanceIds(table, lastId);
        const created = newRecords.map(({ row }) => row);
        await noteImported(session, rules.created, created, now());
        return results;
      };
      return db.run("write", work, {
        // It waits for the writes that are running.
        lockTimeoutMs: 3_000,
        timeoutMs: Number.POSITIVE_INFINITY,
        // The user of an order may be deleted during the import.
        mayRetry: (error) => isRolledBack(error) || isForeignKeyViolation(error),
      });
    },
  };
}

export function createBulkStores(context: StoreContext): Store["bulk"] {
  return {
    users: createBulkStore(context, userImport, usersWithKeys),
    orders: createBulkStore(context, orderImport, ordersWithKeys),
  };
}
