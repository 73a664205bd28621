/**
 * The outbox of orders is on their shards, so that a write of an order is on one server. From there its changes are moved
 * to the one of users, on the coordinator, where all are numbered.
 */
import { changeOf } from "../../change.ts";
import type { Database, Session } from "../connection.ts";
import { outboxColumns, type RecordCreated } from "../outbox.ts";
import { bucketOf } from "./bucket.ts";

/** Key of the advisory lock, "uapo" in ASCII: one process moves at a time, because a transaction on all servers can deadlock with another one. */
const MOVE_LOCK = 0x7561706f;

/** `$1` is a JSON array of changes without their time, and `$2` the time. */
const insertChanges = `
  insert into order_outbox (bucket, ${outboxColumns})
  select bucket, type, record_id, version, status, token, $2::bigint
  from json_to_recordset($1::text::json) as change (
    bucket integer, type smallint, record_id bigint, version bigint, status smallint, token text
  )
`;

/** Records the changes of orders that the transaction of the session has created. */
export const recordOrders: RecordCreated = async (session, type, created, time) => {
  if (created.length === 0) return;
  const changes = created.map(({ record, author }) => ({
    ...changeOf(type, record, author),
    bucket: bucketOf(record.user_id ?? 0),
  }));
  await session.all(insertChanges, JSON.stringify(changes), time.getTime());
};

const findChange = `
  select 1 as found
  from order_outbox
  limit 1
`;
const takeLock = "select pg_advisory_xact_lock($1)";
/**
 * The user of an order was committed on the coordinator before the order could refer to it, so the changes of users are
 * numbered before those of their orders. The number of this transaction is higher than theirs.
 */
const moveChanges = `
  with moved as (
    delete from order_outbox
    returning ${outboxColumns}
  )
  insert into change_outbox (${outboxColumns})
  select ${outboxColumns}
  from moved
`;

/** Moves the changes of orders that were committed before to the outbox on the coordinator. */
export async function collectOrders(db: Database): Promise<void> {
  const found = await db.run("read", (session) => session.first(findChange));
  if (found === null) return;
  const move = async (session: Session) => {
    await session.all(takeLock, MOVE_LOCK);
    await session.all(moveChanges);
  };
  await db.runAdmitted("write", move, { transaction: true, requests: 0 });
}
