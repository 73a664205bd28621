/** Export and import of users and orders. `src/import-plan.ts` has the rules of an import. */

import type { BulkStore } from "../bulk.ts";
import { createClock } from "../clock.ts";
import type { CopyTarget } from "../copy.ts";
import {
  createImportPlanner,
  type Digest,
  type DryRunMemory,
  type ImportRules,
  type StoredRecords,
} from "../import-plan.ts";
import { order_import, parseStoredOrder } from "../order.ts";
import type { Store } from "../store.ts";
import { parseStoredUser, user_import } from "../user.ts";
import type { Database, Session } from "./connection.ts";
import { copyTargetOf } from "./copy-target.ts";
import { isForeignKeyViolation, isRolledBack } from "./errors.ts";
import { columns as order_columns } from "./orders.ts";
import { existing_users, columns as user_columns } from "./users.ts";

const import_timeout = "set local statement_timeout = '60s'";

const users_with_keys = `
  select email_key as key, id::float8 as id
  from users
  where email_key = any($1::text[])
`;
const orders_with_keys = `
  select import_key as key, order_id::float8 as id
  from imported_orders
  where import_key = any($1::text[])
`;

interface BulkTable<Row, Import> {
  readonly table: "users" | "orders";
  readonly columns: string;
  readonly fromRow: (row: never) => Row;
  readonly rules: ImportRules<Row, Import>;
  /** Query for the records that have one of the keys. */
  readonly with_keys: string;
}

/** Takes about 400 bytes per record. A temporary table would need a separate session. */
function createDryRunMemory(): DryRunMemory {
  const digests = new Map<number, Digest>();
  const ids = new Map<string, number>();
  return {
    get: (id) => digests.get(id) ?? null,
    idOf: (key) => ids.get(key) ?? null,
    add(id, key, digest) {
      digests.set(id, digest);
      if (key !== null) ids.set(key, id);
    },
  };
}

/** How the rows of an import are written, in its transaction. */
export interface ImportWriter {
  targetOf(session: Session): CopyTarget;
  /** @returns a statement after which no other transaction assigns ids */
  lockIds(table: "users" | "orders"): string;
}

const plain_writer: ImportWriter = {
  targetOf: copyTargetOf,
  // The lock excludes inserts.
  lockIds: (table) => `lock table ${table} in share row exclusive mode`,
};

function createBulkStore<Row extends { readonly id: number }, Import extends object>(
  db: Database,
  now: () => Date,
  { targetOf, lockIds }: ImportWriter,
  { table, columns, fromRow, rules, with_keys }: BulkTable<Row, Import>,
): BulkStore<Row, Import> {
  // Qualified, because the name alone means the column alias, which is a double.
  const page = `
    select ${columns}
    from ${table}
    where id > $1
    order by ${table}.id
    limit $2
  `;
  const with_ids = `
    select ${columns}
    from ${table}
    where id = any($1::bigint[])
  `;
  const clock = createClock(now);
  const planDryRun = createImportPlanner(rules, clock, createDryRunMemory());

  /** Loads the records that the given ones can conflict with. */
  async function loadStored(
    session: Session,
    records: readonly Import[],
  ): Promise<StoredRecords<Row>> {
    const ids = records.flatMap((record) => ("id" in record ? [Number(record.id)] : []));
    const keys = records.map(rules.keyOf).filter((key) => key !== null);
    const user_ids = new Set(records.map(rules.userOf).filter((id) => id !== null));
    const last_id = await targetOf(session).lastId(table);
    const found_keys = await session.all<{ key: string; id: number }>(with_keys, keys);
    const ids_by_key = new Map(found_keys.map(({ key, id }) => [key, id]));
    const found_rows = await session.all<never>(with_ids, [...ids, ...ids_by_key.values()]);
    const rows = new Map(found_rows.map(fromRow).map((row) => [row.id, row]));
    const found_users = await session.all<{ id: number }>(existing_users, [...user_ids]);
    const users = new Set(found_users.map(({ id }) => id));
    return {
      last_id,
      get: (id) => rows.get(id) ?? null,
      idOf: (key) => ids_by_key.get(key) ?? null,
      hasUser: (id) => users.has(id),
    };
  }

  return {
    async exportPage(after, limit) {
      const rows = await db.run("read", (session) => session.all<never>(page, after, limit));
      return rows.map(fromRow);
    },

    async import(records, dry_run) {
      if (records.length === 0) return [];
      if (dry_run) {
        const stored = await db.run("read", (session) => loadStored(session, records));
        return planDryRun(records, stored).results;
      }
      const work = async (session: Session) => {
        await session.script(import_timeout);
        await session.script(lockIds(table));
        const plan = createImportPlanner(rules, clock, null);
        const { results, new_records, last_id } = plan(records, await loadStored(session, records));
        const { write, advanceIds } = targetOf(session);
        for (const { table: into, toRow } of rules.inserts) {
          const rows = new_records.map(toRow).filter((row) => row !== null);
          await write(into, rows);
        }
        await advanceIds(table, last_id);
        return results;
      };
      return db.run("write", work, {
        transaction: true,
        timeoutMs: Number.POSITIVE_INFINITY,
        // The user of an order may be deleted during the import.
        mayRetry: (error) => isRolledBack(error) || isForeignKeyViolation(error),
      });
    },
  };
}

export function createBulkStores(
  db: Database,
  now: () => Date,
  writer = plain_writer,
): Store["bulk"] {
  return {
    users: createBulkStore(db, now, writer, {
      table: "users",
      columns: user_columns,
      fromRow: parseStoredUser,
      rules: user_import,
      with_keys: users_with_keys,
    }),
    orders: createBulkStore(db, now, writer, {
      table: "orders",
      columns: order_columns,
      fromRow: parseStoredOrder,
      rules: order_import,
      with_keys: orders_with_keys,
    }),
  };
}
