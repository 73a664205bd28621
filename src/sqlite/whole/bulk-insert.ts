/** Inserts the rows of an import or a copy, which bring their own ids, and keeps counts and positions. */
import type { Database } from "bun:sqlite";
import { type CopiedTable, type CopyRow, copiedTables } from "../../domain/copy.ts";
import type { OrderStatus } from "../../domain/order.ts";
import { prepareIdTracker } from "../tables/id-tracker.ts";
import { prepareUserPositions } from "../tables/user-positions.ts";

function insertInto(table: CopiedTable): string {
  const columns: readonly string[] = copiedTables[table].columns;
  const inserted = table === "orders" ? [...columns, "user_position"] : columns;
  return `
    insert into ${table} (${inserted.join(", ")})
    values (${inserted.map((name) => `$${name}`).join(", ")})
  `;
}

/** @returns a function that starts inserting within a transaction */
export function prepareBulkInsert(db: Database) {
  const prepare = (table: CopiedTable) => db.prepare<null, CopyRow>(insertInto(table));
  const statements = {
    users: prepare("users"),
    orders: prepare("orders"),
    tokens: prepare("tokens"),
    idempotency_keys: prepare("idempotency_keys"),
    changes: prepare("changes"),
  };
  const openIds = prepareIdTracker(db);
  const openUserPositions = prepareUserPositions(db);

  return () => {
    const ids = openIds();
    const userPositions = openUserPositions();

    return {
      ids,
      /** Call it for the rows that this one refers to first. */
      insert(table: CopiedTable, row: CopyRow): void {
        const id = Number(row["id"]);
        let inserted = row;
        if (table === "users") ids.add(table, id);
        if (table === "orders") {
          // A CHECK of the table rejects an unknown status.
          ids.add(table, id, row["status"] as OrderStatus);
          inserted = { ...row, user_position: userPositions.add(Number(row["user_id"]), id) };
        }
        statements[table].run(inserted);
      },
      /** Writes the counts and positions. Call it after the last row. */
      finish(): void {
        ids.flush();
        userPositions.renumber();
      },
    };
  };
}
