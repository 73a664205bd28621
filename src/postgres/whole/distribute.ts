/** Distributes a database of one server over the workers of Citus, which were added to it. */
import { redactPassword } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import type { DistributeStore } from "../../domain/store.ts";
import { countWorkers, distribute, truncateLocalData } from "../server/citus.ts";
import { connect, type Database, longTransaction, type Session } from "../server/connection.ts";
import { describePostgresError } from "../server/errors.ts";
import { totalOf, totals } from "../tables/outbox.ts";
import { findSchema, lockSchema } from "./migrate.ts";

/** How long it waits for transactions that use the tables: meanwhile, requests wait behind it. */
const limits = ["set local lock_timeout = '10s'", "set local statement_timeout = 0"];

/** With `user_api`, which every process reads first: one that starts meanwhile must wait. */
const lockTables = "lock table user_api, orders, users in access exclusive mode";

const countOrders = `select (${totalOf(...totals.filter((total) => total !== "users"))})::bigint as orders`;

function runLong(db: Database, work: (session: Session) => Promise<void>): Promise<void> {
  const run = async (session: Session) => {
    for (const limit of limits) await session.script(limit);
    await work(session);
  };
  return db.run("background", run, longTransaction);
}

/** @see DistributeStore */
export const distributePostgres: DistributeStore = async ({ databaseUrl, onStart }) => {
  const name = redactPassword(databaseUrl);
  const db = connect({ databaseUrl });
  const isDistributed = async (session: Session) => (await findSchema(session)).is_distributed;
  let attempt = `Cannot distribute ${name}`;
  try {
    const wasDistributed = await db.run("background", isDistributed);
    if (!wasDistributed) {
      const workers = await db.run("background", countWorkers);
      if (workers === 0)
        fail("operator", "it needs the extension citus, and workers in pg_dist_node");
      const count = (session: Session) => session.first<{ orders: number }>(countOrders);
      onStart((await db.run("background", count))?.orders ?? 0, workers);
      await runLong(db, async (session) => {
        await lockSchema(session);
        await session.script(lockTables);
        // Another process may have done it meanwhile.
        if (!(await isDistributed(session))) await distribute(session);
      });
    }
    attempt = `Distributed ${name}, but cannot free the disk space of its rows on the coordinator`;
    await runLong(db, (session) => session.script(truncateLocalData));
    return !wasDistributed;
  } catch (error) {
    throw describePostgresError(attempt, error);
  } finally {
    await db.close();
  }
};
