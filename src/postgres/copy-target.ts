/** Copies all rows of another database into an empty one, in one transaction. */
import { type CopiedTable, type CopyTarget, copied_tables } from "../copy.ts";
import { redactPassword } from "../database-url.ts";
import { fail } from "../error.ts";
import type { WithCopyTarget } from "../store.ts";
import { findProblems, plain_sections } from "./check.ts";
import { citus_sections } from "./citus/check.ts";
import { citusCopyTargetOf, countRows } from "./citus/copy-target.ts";
import { lockIds } from "./citus/id-lock.ts";
import { sequential_mode } from "./citus/settings.ts";
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

async function prepareTarget(session: Session, is_citus: boolean): Promise<void> {
  await session.script(no_timeouts);
  if (is_citus) {
    await session.script(sequential_mode);
    for (const table of ["users", "orders"] as const) await session.all(lockIds(table));
  }
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
      if (rows.length > 0) await session.copy(table, copied_tables[table].columns, rows);
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
    const db = connect({ database_url, max_pending_writes: 1 });
    const is_citus = db.layout === "citus";
    try {
      await migrate(db, true);
      const fillTarget = async (session: Session) => {
        await prepareTarget(session, is_citus);
        const result = await work(is_citus ? citusCopyTargetOf(session) : copyTargetOf(session));
        if (is_citus) await countRows(session);
        const sections = is_citus ? citus_sections : plain_sections;
        const [finding] = await findProblems(session, sections);
        if (finding !== undefined) fail("operator", finding);
        return result;
      };
      return await db.run("write", fillTarget, {
        transaction: true,
        timeoutMs: Number.POSITIVE_INFINITY,
      });
    } finally {
      await db.close();
    }
  } catch (error) {
    throw describePostgresError(`Cannot copy to ${redactPassword(database_url)}`, error);
  }
};
