import { redactPassword } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { orderStatuses } from "../../domain/order.ts";
import type { DistributeStore } from "../../domain/store.ts";
import { countWorkers, distribute, truncateLocalData } from "../server/citus.ts";
import { connect, longTransaction, type Session } from "../server/connection.ts";
import { describePostgresError } from "../server/errors.ts";
import { totalOf } from "../tables/outbox.ts";
import { findSchema } from "./migrate.ts";

/** It waits no longer for transactions that use the tables: meanwhile, requests wait behind it. */
const options = { ...longTransaction, lockTimeoutMs: 10_000 };

/** With `user_api`, which every process reads first: one that starts meanwhile must wait. */
const lockTables = "lock table user_api, orders, users in access exclusive mode";

const countOrders = `select (${totalOf(...orderStatuses)})::bigint as orders`;

export const distributePostgres: DistributeStore = async (databaseUrl, onStart) => {
  const name = redactPassword(databaseUrl);
  await using db = connect({ databaseUrl });
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
      const lockAndDistribute = async (session: Session) => {
        await session.script(lockTables);
        // Another process may have done it meanwhile.
        if (!(await isDistributed(session))) await distribute(session);
      };
      await db.run("background", lockAndDistribute, options);
    }
    attempt = `Distributed ${name}, but cannot free the disk space of its rows on the coordinator`;
    await db.run("background", (session) => session.script(truncateLocalData), options);
    return !wasDistributed;
  } catch (error) {
    throw describePostgresError(attempt, error);
  }
};
