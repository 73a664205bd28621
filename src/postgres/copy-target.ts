/** Copies all rows of another database into an empty one, in one transaction. */
import { type CopiedTable, type CopyTarget, copiedTables } from "../copy.ts";
import { redactPassword } from "../database-url.ts";
import { fail } from "../error.ts";
import type { WithCopyTarget } from "../store.ts";
import { findProblems, plainSections } from "./check.ts";
import { citusSections } from "./citus/check.ts";
import { citusCopyTargetOf, countRows } from "./citus/copy-target.ts";
import { lockIds } from "./citus/id-lock.ts";
import { sequentialMode } from "./citus/settings.ts";
import { connect, type Session } from "./connection.ts";
import { copySourceOf, noTimeouts } from "./copy-source.ts";
import { describePostgresError } from "./errors.ts";
import { migrate } from "./migrate.ts";
import { newFeedName } from "./numbering.ts";

const tables = Object.keys(copiedTables) as CopiedTable[];
const ALL_TABLES = tables.join(", ");

/** Other writers wait until the copy is committed. */
const lockTables = `
  lock table ${ALL_TABLES} in share row exclusive mode
`;

/** Numbering locks a row of the feed before it writes. */
const lockFeed = `
  lock table change_feed in exclusive mode
`;
/** A new feed, because changes of the source can follow. `$1` is its name. */
const replaceFeed = `
  with replaced as (delete from change_feed)
  insert into change_feed (name, first, last, last_xid, origin, next_xid, running)
  select
    $1, coalesce(min(id), 1), coalesce(max(id), 0), case when count(*) = 0 then 0 else txid_current() end,
    feed_origin(), 0, '{}'
  from changes
`;

async function prepareTarget(session: Session, isCitus: boolean): Promise<void> {
  await session.script(noTimeouts);
  if (isCitus) {
    await session.script(sequentialMode);
    for (const table of ["users", "orders"] as const) await session.all(lockIds(table));
  }
  await session.script(lockTables);
  await session.script(lockFeed);
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
      if (rows.length > 0) await session.copy(table, copiedTables[table].columns, rows);
    },
    async advanceIds(table, id) {
      // A rollback does not reset a sequence, so after a failed copy it can already be at this id.
      if (id <= (await source.lastId(table))) return;
      await session.all(`select setval('${table}_id_seq', $1::bigint)`, id);
    },
  };
}

/** @see WithCopyTarget */
export const withPostgresCopyTarget: WithCopyTarget = async ({ databaseUrl }, work) => {
  try {
    const db = connect({ databaseUrl });
    const isCitus = db.layout === "citus";
    try {
      await migrate(db, { create: true, mode: "write" });
      const fillTarget = async (session: Session) => {
        await prepareTarget(session, isCitus);
        const result = await work(isCitus ? citusCopyTargetOf(session) : copyTargetOf(session));
        if (isCitus) await countRows(session);
        await session.all(replaceFeed, newFeedName());
        const sections = isCitus ? citusSections : plainSections;
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
    throw describePostgresError(`Cannot copy to ${redactPassword(databaseUrl)}`, error);
  }
};
