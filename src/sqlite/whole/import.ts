/** Import of users and orders. `import-plan.ts` and `import-rules.ts` of the domain have the rules. */
import { yieldToEventLoop } from "../../base/event-loop.ts";
import type { BulkStore } from "../../domain/bulk.ts";
import type { ChangedRecord } from "../../domain/change.ts";
import {
  createImportPlanner,
  type ImportedTable,
  type StoredRecords,
} from "../../domain/import-plan.ts";
import { orderImport, userImport } from "../../domain/import-rules.ts";
import type { Store } from "../../domain/store.ts";
import type { StoreContext } from "../tables/context.ts";
import { prepareLastId } from "../tables/count-index.ts";
import { prepareText } from "../tables/records.ts";
import { prepareBulkInsert } from "./bulk-insert.ts";

const userWithEmailKey = `
  select id
  from users
  where email_key = $key
`;
const orderWithImportKey = `
  select order_id as id
  from imported_orders
  where import_key = $key
`;

function createBulkStore<Row extends ChangedRecord, Import extends object>(
  { db, timestamp, reader, writer, noteChange }: StoreContext,
  openBulkInsert: ReturnType<typeof prepareBulkInsert>,
  rules: ImportedTable<Row, Import>,
  selectIdWithKey: string,
): BulkStore<Import> {
  const { table } = rules;
  const withId = prepareText<Row>(db, table, rules.schema);
  const withKey = db.prepare<{ id: number }, { key: string }>(selectIdWithKey);
  const userWithId = db.prepare<{ id: number }, { id: number }>(`
    select id
    from users
    where id = $id
  `);
  const userWithEmail = db.prepare<{ id: number }, { key: string }>(userWithEmailKey);
  const lastId = prepareLastId(db);
  const planDryRun = createImportPlanner(rules, timestamp, true);

  function readStored(): StoredRecords<Row> {
    const last = lastId(table);
    return {
      lastId: last,
      get(id) {
        // No record has an id beyond the last one.
        const row = id > last ? null : withId.get(id);
        return row === null ? null : JSON.parse(row.json);
      },
      idOf: (key) => withKey.get({ key })?.id ?? null,
      hasUser: (id) => userWithId.get({ id }) !== null,
      userWithEmail: (key) => userWithEmail.get({ key })?.id ?? null,
    };
  }

  return {
    async import(records, dryRun) {
      if (dryRun) {
        const { results } = reader.read(table, () => planDryRun(records, readStored()));
        await yieldToEventLoop();
        return results;
      }
      return writer.write(table, () => {
        const plan = createImportPlanner(rules, timestamp, false);
        const { results, newRecords } = plan(records, readStored());
        const { insert, finish } = openBulkInsert();
        for (const { table: into, toRow } of rules.inserts) {
          for (const record of newRecords) {
            const row = toRow(record);
            if (row !== null) insert(into, row);
          }
        }
        finish();
        for (const { row } of newRecords) noteChange(rules.created, row, null);
        return results;
      });
    },
  };
}

export function createBulkStores(context: StoreContext): Store["bulk"] {
  const openBulkInsert = prepareBulkInsert(context.db);
  return {
    users: createBulkStore(context, openBulkInsert, userImport, userWithEmailKey),
    orders: createBulkStore(context, openBulkInsert, orderImport, orderWithImportKey),
  };
}
