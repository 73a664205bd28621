/** Export and import of users and orders. `src/domain/import-plan.ts` and `src/domain/import-rules.ts` have the rules of an import. */
import type { Database } from "bun:sqlite";
import { yieldToEventLoop } from "../../base/event-loop.ts";
import type { BulkStore } from "../../domain/bulk.ts";
import { type ChangedRecord, changeOf } from "../../domain/change.ts";
import {
  createImportPlanner,
  type Digest,
  type DryRunMemory,
  type ImportedTable,
  type PlanImport,
  type StoredRecords,
} from "../../domain/import-plan.ts";
import { orderImport, userImport } from "../../domain/import-rules.ts";
import { maxId, type Sort } from "../../domain/page.ts";
import type { RecordTable } from "../../domain/record.ts";
import type { Store } from "../../domain/store.ts";
import { columnNames } from "../tables/columns.ts";
import type { StoreContext } from "../tables/context.ts";
import { prepareLastId } from "../tables/count-index.ts";
import { preparePages } from "../tables/counted-list.ts";
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

/**
 * Remembers records in a temporary table, which only this connection sees: a file can have more records than fit into
 * memory.
 */
function createDryRunMemory(db: Database, table: RecordTable): DryRunMemory {
  db.run(`
    create temp table tried_${table} (
      id integer primary key,
      key text unique,
      record integer not null,
      content integer not null
    ) strict
  `);
  const withId = db.prepare<Digest, { id: number }>(`
    select record, content
    from tried_${table}
    where id = $id
  `);
  const withKey = db.prepare<{ id: number }, { key: string }>(`
    select id
    from tried_${table}
    where key = $key
  `);
  const insert = db.prepare<null, Record<string, string | number | null>>(`
    insert or replace into tried_${table} (id, key, record, content)
    values ($id, $key, $record, $content)
  `);
  return {
    get: (id) => withId.get({ id }),
    idOf: (key) => withKey.get({ key })?.id ?? null,
    add: (id, key, digest) => insert.run({ ...digest, id, key }),
  };
}

function createBulkStore<Row extends ChangedRecord, Import extends object, Stored>(
  { db, timestamp, reader, writer, recordChange }: StoreContext,
  openBulkInsert: ReturnType<typeof prepareBulkInsert>,
  rules: ImportedTable<Row, Import, Stored>,
  selectIdWithKey: string,
): BulkStore<Row, Import> {
  const { table } = rules;
  const columns = columnNames(rules.schema);
  const pages = preparePages<Stored>(db, { table, columns, where: "" });
  const withId = db.prepare<Stored, { id: number }>(`
    select ${columns}
    from ${table}
    where id = $id
  `);
  const withKey = db.prepare<{ id: number }, { key: string }>(selectIdWithKey);
  const userWithId = db.prepare<{ id: number }, { id: number }>(`
    select id
    from users
    where id = $id
  `);
  const userWithEmail = db.prepare<{ id: number }, { key: string }>(userWithEmailKey);
  const lastId = prepareLastId(db);
  let planDryRun: PlanImport<Row, Import> | null = null;

  function readPage(after: number, limit: number, sort: Sort): readonly Row[] {
    const rows =
      sort === "id"
        ? pages.up.all({ after, skip: 0, limit })
        : pages.down.all({ last: maxId({ after }), limit });
    return rows.map(rules.parse);
  }

  function readStored(): StoredRecords<Row> {
    const last = lastId(table);
    return {
      lastId: last,
      get(id) {
        // No record has an id beyond the last one.
        const row = id > last ? null : withId.get({ id });
        return row === null ? null : rules.parse(row);
      },
      idOf: (key) => withKey.get({ key })?.id ?? null,
      hasUser: (id) => userWithId.get({ id }) !== null,
      userWithEmail: (key) => userWithEmail.get({ key })?.id ?? null,
    };
  }

  return {
    async exportPage(after, limit, sort) {
      const rows = reader.read(table, () => readPage(after, limit, sort));
      await yieldToEventLoop();
      return rows;
    },

    async import(records, dryRun) {
      if (dryRun) {
        planDryRun ??= createImportPlanner(rules, timestamp, createDryRunMemory(db, table));
        const plan = planDryRun;
        const { results } = reader.read(table, () => plan(records, readStored()));
        await yieldToEventLoop();
        return results;
      }
      return writer.write(table, () => {
        const plan = createImportPlanner(rules, timestamp, null);
        const { results, newRecords } = plan(records, readStored());
        const { insert, finish } = openBulkInsert();
        for (const { table: into, toRow } of rules.inserts) {
          for (const record of newRecords) {
            const row = toRow(record);
            if (row !== null) insert(into, row);
          }
        }
        finish();
        for (const { row } of newRecords) recordChange(changeOf(rules.created, row, null));
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
