/** Creates a database from all rows of another. The file gets its name only after it has been verified. */
import type { Database } from "bun:sqlite";
import type { CopiedTable, CopyRow, CopyTarget } from "../copy.ts";
import { fail, systemCode } from "../error.ts";
import { checkIdGap } from "../import.ts";
import type { OrderStatus } from "../order.ts";
import { claimPartial } from "../partial-file.ts";
import type { WithCopyTarget } from "../store.ts";
import { verifyDatabase } from "./backup.ts";
import { connect } from "./connection.ts";
import { copySourceOf } from "./copy-source.ts";
import { prepareIdTracker } from "./count-index.import.ts";
import type { CountedTable } from "./count-index.ts";
import { describeSqliteError } from "./errors.ts";
import { createPrivateFile, discard, publish, requireAbsent } from "./files.ts";
import { migrate } from "./migrate.ts";
import { prepareUserPositions } from "./user-positions.ts";

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

function copyTargetOf(db: Database): CopyTarget {
  const user_positions = prepareUserPositions(db)();
  const ids = { users: prepareIdTracker(db, "users")(), orders: prepareIdTracker(db, "orders")() };
  const clearLastId = db.prepare<null, { table: string }>(`
    delete from sqlite_sequence
    where name = $table
  `);
  const setLastId = db.prepare<null, { table: string; id: number }>(`
    insert into sqlite_sequence (name, seq)
    values ($table, $id)
  `);

  /** @returns the ids of the table @throws {AppError} operator if the gap before `id` is too large */
  function idsFor(table: CountedTable, id: number) {
    const gap = checkIdGap(id, ids[table].last());
    if (gap?.outcome === "rejected") fail("operator", `${table}: ${gap.reason}`);
    return ids[table];
  }

  function toInsertedRow(table: CopiedTable, row: CopyRow): CopyRow {
    if (table !== "users" && table !== "orders") return row;
    const id = Number(row["id"]);
    // A CHECK of the table rejects an unknown status.
    idsFor(table, id).add(id, table === "orders" ? (row["status"] as OrderStatus) : null);
    if (table === "users") return row;
    return { ...row, user_position: user_positions.add(Number(row["user_id"]), id) };
  }

  return {
    ...copySourceOf(db),
    async write(table, rows) {
      const insert = db.prepare<null, CopyRow>(inserts[table]);
      try {
        for (const row of rows) insert.run(toInsertedRow(table, row));
      } catch (error) {
        // A CHECK that cannot be evaluated, e.g. on malformed JSON, fails with SQLITE_ERROR.
        if (!/^SQLITE_(CONSTRAINT|ERROR)/.test(systemCode(error))) throw error;
        fail("operator", `a row of ${table} is invalid`);
      } finally {
        insert.finalize();
      }
    },
    async advanceIds(table, id) {
      if (table !== "tokens") {
        idsFor(table, id).skipTo(id);
        ids[table].flush();
        user_positions.renumber();
      }
      clearLastId.run({ table });
      setLastId.run({ table, id });
    },
  };
}

async function buildDatabase<Result>(
  temporary_path: string,
  work: (target: CopyTarget) => Promise<Result>,
): Promise<Result> {
  using db = connect(temporary_path);
  // No process uses the file yet: it is removed if the copy fails, and synced once at the end.
  db.run("pragma journal_mode = off");
  db.run("pragma synchronous = off");
  migrate(db);
  db.run("begin");
  const result = await work(copyTargetOf(db));
  db.run("commit");
  return result;
}

/** @see WithCopyTarget */
export const withSqliteCopyTarget: WithCopyTarget = async ({ database_url: path }, work) => {
  const temporary_path = claimPartial(path);
  try {
    requireAbsent(path);
    createPrivateFile(temporary_path);
    const result = await buildDatabase(temporary_path, work);
    verifyDatabase(temporary_path);
    publish(temporary_path, path);
    return result;
  } catch (error) {
    throw describeSqliteError(`Cannot copy to ${path}`, error);
  } finally {
    discard(temporary_path);
  }
};
