/** Import of users and orders. `import-plan.ts` and `import-rules.ts` of the domain have the rules. */
import { AppError } from "../../base/error.ts";
import { yieldToEventLoop } from "../../base/event-loop.ts";
import type { BulkStore } from "../../domain/bulk.ts";
import { type ChangedRecord, changedFields } from "../../domain/change.ts";
import { createPlanner, type ImportPlan } from "../../domain/import-plan.ts";
import * as imports from "../../domain/import-rules.ts";
import type { Store } from "../../domain/store.ts";
import { prepareLastId } from "../tables/count-index.ts";
import { prepareOrderUpdate } from "../tables/orders.ts";
import { prepareIdOf, prepareText, type StoreContext, type Update } from "../tables/records.ts";
import { prepareUserUpdate } from "../tables/users.ts";
import { prepareBulkInsert } from "./bulk-insert.ts";

function createBulkStore<Row extends imports.ImportedRow & ChangedRecord, Import extends object>(
  { db, timestamp, reader, writer, noteChange }: StoreContext,
  rules: imports.ImportRules<Row, Import>,
  update: Update<Row>,
): BulkStore<Import> {
  const { table } = rules;
  const withId = prepareText<Row>(db, table, rules.schema);
  const idOf = prepareIdOf(db, table);
  const userIdOf = prepareIdOf(db, "users");
  const userWithId = db.prepare<{ email: string }, { id: number }>(`
    select email
    from users
    where id = $id
  `);
  // No key of an email is a number.
  const columns = table === "users" ? "reference = null, email_key = id" : "reference = null";
  const clearKeys = db.prepare<null, { id: number }>(`
    update ${table}
    set ${columns}
    where id = $id
  `);
  const lastId = prepareLastId(db);
  const openBulkInsert = prepareBulkInsert(db);
  const plan = createPlanner(rules, timestamp);

  function readStored(): imports.StoredRecords<Row> {
    const last = lastId(table);
    return {
      lastId: last,
      get(id) {
        // No record has an id beyond the last one.
        const row = id > last ? null : withId.get(id);
        return row === null ? null : JSON.parse(row.json);
      },
      idOf,
      emailOf: (id) => userWithId.get({ id })?.email ?? null,
      userIdOf,
    };
  }

  function apply({ created, updated }: ImportPlan<Row>): void {
    // One can get the key of another.
    for (const { before, after } of updated)
      if (!Bun.deepEquals(rules.keysOf(before), rules.keysOf(after)))
        clearKeys.run({ id: before.id });
    // First: a new record can have the key that another one gives up.
    for (const { before, after } of updated)
      update(before, after, changedFields(before, after), null);
    const { insert, finish } = openBulkInsert();
    for (const row of created) {
      insert(table, rules.toRow(row));
      noteChange(rules.created, row, null);
    }
    finish();
  }

  return {
    async import(records, options) {
      if (options?.dryRun) {
        const { results } = reader.read(table, () => plan(records, readStored(), options));
        await yieldToEventLoop();
        return results;
      }
      return writer.write(table, () => {
        const planned = plan(records, readStored(), options);
        try {
          apply(planned);
        } catch (error) {
          // The batch would be committed: an AppError says that a write has changed nothing.
          throw error instanceof AppError
            ? new Error("the plan is wrong", { cause: error })
            : error;
        }
        return planned.results;
      });
    },
  };
}

export function createBulkStores(context: StoreContext): Store["bulk"] {
  return {
    users: createBulkStore(context, imports.userImport, prepareUserUpdate(context)),
    orders: createBulkStore(context, imports.orderImport, prepareOrderUpdate(context)),
  };
}
