import { redactPassword } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { type CopySource, copiedTableNames, withMappedErrors } from "../../domain/copy.ts";
import type { Backend } from "../../domain/store.ts";
import { type Database, longTransaction, type Session } from "../server/connection.ts";
import { describePostgresError } from "../server/errors.ts";
import type { Placement } from "../server/placement.ts";
import { callNumbering, lockFeed } from "../tables/numbering.ts";
import { findProblems } from "./check.ts";
import { openMigrated } from "./migrate.ts";
import { rowsOf } from "./rows.ts";

/** During a copy, each database waits for the other. */
const noIdleTimeout = "set local idle_in_transaction_session_timeout = 0";

export async function withCopySource<Result>(
  db: Database,
  placement: Placement,
  name: string,
  work: (source: CopySource) => Promise<Result>,
): Promise<Result> {
  const explain = (error: unknown) => describePostgresError(`Cannot read ${name}`, error);
  let working: Promise<Result> | null = null;
  const run = async (session: Session) => {
    await session.script(noIdleTimeout);
    // From each shard, so that the snapshots of all servers of a cluster are taken at about the same time.
    await session.all("select from orders where id = 0");
    working = work(withMappedErrors(rowsOf(session, placement), explain));
    return working;
  };
  try {
    return await db.run("read", run, longTransaction);
  } catch (error) {
    // If the connection is lost, the transaction fails first. The error of `work` follows and is more specific.
    return await (working ?? Promise.reject(explain(error)));
  }
}

/** Makes numbering begin a new feed, because changes of the source can follow, and count the records. */
const endFeed = "update change_feed set xid = 0";

async function prepareTarget(session: Session, placement: Placement): Promise<void> {
  await session.script(noIdleTimeout);
  for (const statement of placement.beforeCopy) await session.script(statement);
  await session.script(`lock table ${copiedTableNames.join(", ")} in share row exclusive mode`);
  await lockFeed(session);
  for (const table of new Set(["users", ...copiedTableNames, "change_outbox"])) {
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
