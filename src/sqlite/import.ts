/** Export and import of users and orders. `src/import-plan.ts` and `src/import-rules.ts` have the rules of an import. */
import type { Database } from "bun:sqlite";
import type { BulkStore } from "../bulk.ts";
import { type ChangedRecord, type ChangeType, changeOf } from "../change.ts";
import { endTurn } from "../end-turn.ts";
import {
  createImportPlanner,
  type Digest,
  type DryRunMemory,
  type ImportRules,
  type PlanImport,
  type StoredRecords,
} from "../import-plan.ts";
import { orderImport, userImport } from "../import-rules.ts";
import { parseStoredOrder } from "../order.ts";
import { maxId, type Sort } from "../page.ts";
import type { Store } from "../store.ts";
import { parseStoredUser } from "../user.ts";
import { prepareBulkInsert } from "./bulk-insert.ts";
import type { StoreContext } from "./context.ts";
import { type CountedTable, prepareLastId } from "./count-index.ts";
import { preparePages } from "./counted-list.ts";
import { columns as orderColumns } from "./orders.ts";
import { columns as userColumns } from "./users.ts";

const userWithEmailKey = `
  select id
  from users
  where email_key = $key
`;

interface BulkTableParts<Row, Import, Stored> {
  readonly table: CountedTable;
  /** The change of a record that an import creates. */
  readonly created: ChangeType;
  readonly columns: string;
  readonly fromRow: (row: Stored) => Row;
  readonly rules: ImportRules<Row, Import>;
  /** Selects the id of the record with `$key`. */
  readonly selectId: string;
}

/**
 * Remembers records in a temporary table, which only this connection sees: a file can have more records than fit into
 * memory.
 */
function createDryRunMemory(db: Database, table: CountedTable): DryRunMemory {
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
  { db, clock, reader, writer, recordChange }: StoreContext,
  openBulkInsert: ReturnType<typeof prepareBulkInsert>,
  { table, created, columns, fromRow, rules, selectId }: BulkTableParts<Row, Import, Stored>,
): BulkStore<Row, Import> {
  const pages = preparePages<Stored>(db, { table, columns, where: "" });
  const withId = db.prepare<Stored, { id: number }>(`
    select ${columns}
    from ${table}
    where id = $id
  `);
  const withKey = db.prepare<{ id: number }, { key: string }>(selectId);
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
    return rows.map(fromRow);
  }

  function readStored(): StoredRecords<Row> {
    const last = lastId(table);
    return {
      lastId: last,
      get(id) {
        // No record has an id beyond the last one.
        const row = id > last ? null : withId.get({ id });
        return row === null ? null : fromRow(row);
      },
      idOf: (key) => withKey.get({ key })?.id ?? null,
      hasUser: (id) => userWithId.get({ id }) !== null,
      userWithEmail: (key) => userWithEmail.get({ key })?.id ?? null,
    };
  }

  return {
    async exportPage(after, limit, sort) {
      const rows = reader.read(table, () => readPage(after, limit, sort));
      await endTurn();
      return rows;
    },

    async import(records, dryRun) {
      if (dryRun) {
        planDryRun ??= createImportPlanner(rules, clock, createDryRunMemory(db, table));
        const plan = planDryRun;
        const { results } = reader.read(table, () => plan(records, readStored()));
        await endTurn();
        return results;
      }
      return writer.write(table, () => {
        const plan = createImportPlanner(rules, clock, null);
        const { results, newRecords } = plan(records, readStored());
        const { insert, finish } = openBulkInsert();
        for (const { table: into, toRow } of rules.inserts) {
          for (const record of newRecords) {
            const row = toRow(record);
            if (row !== null) insert(into, row);
          }
        }
        finish();
        for (const { row } of newRecords) recordChange(changeOf(created, row, null));
        return results;
      });
    },
  };
}

export function createBulkStores(context: StoreContext): Store["bulk"] {
  const openBulkInsert = prepareBulkInsert(context.db);
  return {
    users: createBulkStore(context, openBulkInsert, {
      table: "users",
      created: "user.created",
      columns: userColumns,
      fromRow: parseStoredUser,
      rules: userImport,
      selectId: userWithEmailKey,
    }),
    orders: createBulkStore(context, openBulkInsert, {
      table: "orders",
      created: "order.created",
      columns: orderColumns,
      fromRow: parseStoredOrder,
      rules: orderImport,
      selectId: "select order_id as id from imported_orders where import_key = $key",
    }),
  };
}
