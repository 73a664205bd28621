/** All rows of another database into an empty one, in one transaction. */
import { shownDatabase } from "../config.ts";
import { type CopiedTable, copied_tables, type Filling } from "../copy.ts";
import { fail } from "../error.ts";
import type { FillStore, PostgresLayout } from "../store.ts";
import { findAll } from "./check.ts";
import { connect, type Session } from "./connection.ts";
import { migrate } from "./migrate.ts";
import { operatorError } from "./reasons.ts";
import { snapshotOf, without_bounds } from "./snapshot.ts";

const tables = Object.keys(copied_tables) as CopiedTable[];
const ALL_TABLES = tables.join(", ");

/** Who writes meanwhile waits until all is there. */
const alone = `
  lock table ${ALL_TABLES} in share row exclusive mode
`;
/** Users are on all servers: what follows a change of them may not run on several connections to one. */
const one_by_one = `
  set local citus.multi_shard_modify_mode to 'sequential'
`;

async function begin(session: Session, layout: PostgresLayout): Promise<void> {
  await session.script(without_bounds);
  if (layout === "citus") await session.script(one_by_one);
  await session.script(alone);
  const { count } = snapshotOf(session);
  for (const table of tables) {
    if ((await count(table)) === 0) continue;
    fail("operator", `it is not empty, there are ${table.replaceAll("_", " ")} in it`);
  }
}

function fillingOf(session: Session): Filling {
  const snapshot = snapshotOf(session);
  return {
    ...snapshot,
    async write(table, rows) {
      const { columns } = copied_tables[table];
      const cells = rows.map((row) => columns.map((name) => row[name] ?? null));
      if (rows.length > 0) await session.copy(`${table} (${columns.join(", ")})`, cells);
    },
    async giveUpTo(table, id) {
      // A rollback keeps a sequence where it is: after an attempt it may be there already.
      if (id <= (await snapshot.lastId(table))) return;
      await session.all(`select setval('${table}_id_seq', $1::bigint)`, id);
    },
  };
}

/** @see FillStore */
export const fillPostgres: FillStore = async (
  { database_url, postgres_layout = "plain" },
  work,
) => {
  try {
    const db = connect({ database_url, max_pending_writes: 1 });
    try {
      await migrate(db, postgres_layout, true);
      const fill = async (session: Session) => {
        await begin(session, postgres_layout);
        const result = await work(fillingOf(session));
        const [finding] = await findAll(session, postgres_layout);
        if (finding !== undefined) fail("operator", finding);
        return result;
      };
      return await db.transact(fill, { patience_ms: Number.POSITIVE_INFINITY });
    } finally {
      await db.close();
    }
  } catch (error) {
    throw operatorError(`Cannot copy to ${shownDatabase(database_url)}`, error);
  }
};
