/** Copies all rows of another database into an empty one, in one transaction. */
import { type CopiedTable, type CopyTarget, copied_tables } from "../copy.ts";
import { type PostgresLayout, redactPassword, splitLayout } from "../database-url.ts";
import { fail } from "../error.ts";
import type { WithCopyTarget } from "../store.ts";
import { findProblems } from "./check.ts";
import { connect, type Session } from "./connection.ts";
import { copySourceOf, no_timeouts } from "./copy-source.ts";
import { describePostgresError } from "./errors.ts";
import { migrate } from "./migrate.ts";

const tables = Object.keys(copied_tables) as CopiedTable[];
const ALL_TABLES = tables.join(", ");

/** Other writers wait until the copy is committed. */
const lock_tables = `
  lock table ${ALL_TABLES} in share row exclusive mode
`;
/**
 * On Citus, `users` is a reference table with a copy on every node. After a transaction has modified it, the
 * transaction must stay on one connection per node.
 */
const sequential_mode = `
  set local citus.multi_shard_modify_mode to 'sequential'
`;

async function prepareTarget(session: Session, layout: PostgresLayout): Promise<void> {
  await session.script(no_timeouts);
  if (layout === "citus") await session.script(sequential_mode);
  await session.script(lock_tables);
  const { count } = copySourceOf(session);
  for (const table of tables) {
    if ((await count(table)) === 0) continue;
    fail("operator", `the database is not empty: it contains ${table.replaceAll("_", " ")}`);
  }
}

export function copyTargetOf(session: Session): CopyTarget {
  const source = copySourceOf(session);
  return {
    ...source,
    async write(table, rows) {
      const { columns } = copied_tables[table];
      const cells = rows.map((row) => columns.map((name) => row[name] ?? null));
      if (rows.length > 0) await session.copy(`${table} (${columns.join(", ")})`, cells);
    },
    async advanceIds(table, id) {
      // A rollback does not reset a sequence, so after a failed copy it can already be at this id.
      if (id <= (await source.lastId(table))) return;
      await session.all(`select setval('${table}_id_seq', $1::bigint)`, id);
    },
  };
}

/** @see WithCopyTarget */
export const withPostgresCopyTarget: WithCopyTarget = async ({ database_url }, work) => {
  try {
    const { layout, driver_url } = splitLayout(database_url);
    const db = connect({ database_url: driver_url, max_pending_writes: 1 });
    try {
      await migrate(db, layout, true);
      const fillTarget = async (session: Session) => {
        await prepareTarget(session, layout);
        const result = await work(copyTargetOf(session));
        const [finding] = await findProblems(session, layout);
        if (finding !== undefined) fail("operator", finding);
        return result;
      };
      return await db.transact(fillTarget, { timeout_ms: Number.POSITIVE_INFINITY });
    } finally {
      await db.close();
    }
  } catch (error) {
    throw describePostgresError(`Cannot copy to ${redactPassword(database_url)}`, error);
  }
};
