import { type CopySource, withMappedErrors } from "../../domain/copy.ts";
import { type Database, longTransaction, type Session } from "../server/connection.ts";
import { describePostgresError } from "../server/errors.ts";
import type { Placement } from "../server/placement.ts";
import { rowsOf } from "./rows.ts";

/** During a copy, each database waits for the other. */
export const noIdleTimeout = "set local idle_in_transaction_session_timeout = 0";

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
