import { redactPassword } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { copiedTableNames } from "../../domain/copy.ts";
import type { Backend } from "../../domain/store.ts";
import { longTransaction, type Session } from "../server/connection.ts";
import { describePostgresError } from "../server/errors.ts";
import type { Placement } from "../server/placement.ts";
import { callNumbering, lockFeed } from "../tables/numbering.ts";
import { findProblems } from "./check.ts";
import { noIdleTimeout } from "./copy-source.ts";
import { openMigrated } from "./migrate.ts";
import { rowsOf } from "./rows.ts";

/** Makes numbering begin a new feed, because changes of the source can follow, and count the records. */
const endFeed = "update change_feed set xid = 0";

async function prepareTarget(session: Session, placement: Placement): Promise<void> {
  await session.script(noIdleTimeout);
  for (const statement of placement.beforeCopy) await session.script(statement);
  await session.script(`lock table ${copiedTableNames.join(", ")} in share row exclusive mode`);
  await lockFeed(session);
  for (const table of [...copiedTableNames, "change_outbox"]) {
    if ((await session.first(`select from ${table} limit 1`)) === null) continue;
    fail("operator", `the database is not empty: it contains ${table.replaceAll("_", " ")}`);
  }
}

export const withPostgresCopyTarget: Backend["withCopyTarget"] = async (databaseUrl, work) => {
  try {
    const { db, placement } = await openMigrated({ databaseUrl, create: true, mode: "write" });
    await using _connections = db;
    const fillTarget = async (session: Session) => {
      await prepareTarget(session, placement);
      const result = await work(rowsOf(session, placement));
      await session.script(endFeed);
      await callNumbering(session);
      await session.script("analyze");
      const [finding] = await findProblems(session, placement);
      if (finding !== undefined) fail("operator", finding);
      return result;
    };
    return await db.run("write", fillTarget, longTransaction);
  } catch (error) {
    throw describePostgresError(`Cannot copy to ${redactPassword(databaseUrl)}`, error);
  }
};
