/** A new database out of all rows of another: a file that has no name of its own before it is proved good. */
import type { Database } from "bun:sqlite";
import type { CopiedTable, CopyRow, Filling } from "../copy.ts";
import { fail, systemCode } from "../error.ts";
import type { OrderStatus } from "../order.ts";
import { claimPartial } from "../partial-file.ts";
import type { FillStore } from "../store.ts";
import { refuseLeap } from "../transfer.ts";
import { verify } from "./backup.ts";
import type { Table } from "./buckets.ts";
import { connect } from "./connection.ts";
import { createPrivate, discard, put, requireFree } from "./files.ts";
import { prepareIds } from "./ids.ts";
import { migrate } from "./migrate.ts";
import { preparePlaces } from "./places.ts";
import { operatorError } from "./reasons.ts";
import { snapshotOf } from "./snapshot.ts";

const inserts: Readonly<Record<CopiedTable, string>> = {
  users: `
    insert into users (id, email, email_key, name, metadata, version, created_at, updated_at)
    values ($id, $email, $email_key, $name, $metadata, $version, $created_at, $updated_at)
  `,
  orders: `
    insert into orders (
      id, user_id, user_position, currency, items, total, status, metadata, version, created_at,
      updated_at
    )
    values (
      $id, $user_id, $user_position, $currency, $items, $total, $status, $metadata, $version,
      $created_at, $updated_at
    )
  `,
  imported_orders: `
    insert into imported_orders (import_key, order_id)
    values ($import_key, $order_id)
  `,
  tokens: `
    insert into tokens (
      id, hash, name, scope, created_at, expires_at, last_used_at, revoked_at
    )
    values ($id, $hash, $name, $scope, $created_at, $expires_at, $last_used_at, $revoked_at)
  `,
  idempotency_keys: `
    insert into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ($owner, $key, $fingerprint, $record, $created_at)
  `,
};

function fillingOf(db: Database): Filling {
  const places = preparePlaces(db)();
  const ids = { users: prepareIds(db, "users")(), orders: prepareIds(db, "orders")() };
  const forgetLast = db.prepare<null, { table: string }>(`
    delete from sqlite_sequence
    where name = $table
  `);
  const noteLast = db.prepare<null, { table: string; id: number }>(`
    insert into sqlite_sequence (name, seq)
    values ($table, $id)
  `);

  /** @returns the ids of the table, which reach this one @throws {AppError} operator when it is too far */
  function idsFor(table: Table, id: number) {
    const leap = refuseLeap(id, ids[table].last());
    if (leap?.outcome === "refused") fail("operator", `${table}: ${leap.reason}`);
    return ids[table];
  }

  function toInsert(table: CopiedTable, row: CopyRow): CopyRow {
    if (table !== "users" && table !== "orders") return row;
    const id = Number(row["id"]);
    // The table itself refuses a status that is none.
    idsFor(table, id).give(id, table === "orders" ? (row["status"] as OrderStatus) : null);
    if (table === "users") return row;
    return { ...row, user_position: places.give(Number(row["user_id"]), id) };
  }

  return {
    ...snapshotOf(db),
    async write(table, rows) {
      const insert = db.prepare<null, CopyRow>(inserts[table]);
      try {
        for (const row of rows) insert.run(toInsert(table, row));
      } catch (error) {
        // A CHECK that cannot be evaluated, as of malformed JSON, is SQLITE_ERROR.
        if (!/^SQLITE_(CONSTRAINT|ERROR)/.test(systemCode(error))) throw error;
        fail("operator", `a row of ${table} is not what it must be`);
      } finally {
        insert.finalize();
      }
    },
    async giveUpTo(table, id) {
      if (table !== "tokens") {
        idsFor(table, id).skip(id);
        ids[table].finish();
        places.finish();
      }
      forgetLast.run({ table });
      noteLast.run({ table, id });
    },
  };
}

async function fill<Result>(
  draft: string,
  work: (filling: Filling) => Promise<Result>,
): Promise<Result> {
  using db = connect(draft);
  // Nobody needs it yet: what fails is thrown away, and all is synced once.
  db.run("pragma journal_mode = off");
  db.run("pragma synchronous = off");
  migrate(db);
  db.run("begin");
  const result = await work(fillingOf(db));
  db.run("commit");
  return result;
}

/** @see FillStore */
export const fillSqlite: FillStore = async ({ database_url: path }, work) => {
  const draft = claimPartial(path);
  try {
    requireFree(path);
    createPrivate(draft);
    const result = await fill(draft, work);
    verify(draft);
    put(draft, path);
    return result;
  } catch (error) {
    throw operatorError(`Cannot copy to ${path}`, error);
  } finally {
    discard(draft);
  }
};
