/** Reads changes, and the records that belong to them. */
import { changeTypes, LAST_OF_USERS } from "../change.ts";
import { jsonBytes } from "../columns.ts";
import { Order, orderStatuses } from "../order.ts";
import type { JsonRow } from "../page.ts";
import type { RecordTable } from "../record.ts";
import type { Schema } from "../schema.ts";
import { User } from "../user.ts";
import { itemAt } from "./batch.ts";
import { recordJson } from "./columns.ts";
import type { Session } from "./connection.ts";

/** Maximum size of a record in a result of several. */
const MAX_SHARED_BYTES = 2 ** 15;

/** The types of users are the first ones. */
const ofUser = `type <= ${LAST_OF_USERS}`;

function namesOf(names: readonly string[]): string {
  return `array['${names.join("', '")}']`;
}

/** A change as JSON, without the closing brace. */
export const changeJson = `
  format(
    '{"id":%s,"type":"%s","record_id":%s,"version":%s,"status":%s,"token":%s,"created_at":"%s"',
    id, (${namesOf(changeTypes)})[type], record_id, version,
    coalesce('"' || (${namesOf(orderStatuses)})[status] || '"', 'null'),
    coalesce(to_json(token)::text, 'null'),
    to_char(
      timestamp 'epoch' + created_at * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
    )
  )
`;

/** Parameters: the id before the first change, and the limit. */
const selectChanges = `
  select changes.id, ${changeJson} as json, ${ofUser} as "isOfUser", record_id
  from changes
  where id > $1::bigint
  order by changes.id
  limit $2::bigint
`;

/** `$1` is an array of ids, `$2` the maximum size. The JSON of a larger record is null. */
function selectRecords(table: RecordTable, record: Schema): string {
  return `
    select ${table}.id,
      case when ${jsonBytes(record, "lower")} <= $2::bigint then ${recordJson(record)} end as json
    from ${table}
    where id = any($1::bigint[])
  `;
}

const selectUsers = selectRecords("users", User);
const selectOrders = selectRecords("orders", Order);

export interface ChangeRow extends JsonRow {
  readonly isOfUser: boolean;
  readonly record_id: number;
}

/** @param start id before the first change */
export function readChanges(
  session: Session,
  start: number,
  limit: number,
): Promise<readonly ChangeRow[]> {
  return session.all<ChangeRow>(selectChanges, start, limit);
}

/** @returns the records of changes as they are now: `null` for one that is larger, and JSON for one that is gone */
async function findRecords(
  session: Session,
  changes: readonly ChangeRow[],
  maxBytes: number,
): Promise<(string | null)[]> {
  async function find(ofUsers: boolean, statement: string) {
    const ofTable = changes.filter(({ isOfUser }) => isOfUser === ofUsers);
    const ids = [...new Set(ofTable.map(({ record_id }) => record_id))];
    type Row = { readonly id: number; readonly json: string | null };
    const found = ids.length === 0 ? [] : await session.all<Row>(statement, ids, maxBytes);
    return new Map(found.map(({ id, json }) => [id, json]));
  }
  const users = await find(true, selectUsers);
  const orders = await find(false, selectOrders);
  return changes.map(({ isOfUser, record_id }) => {
    const record = (isOfUser ? users : orders).get(record_id);
    return record === undefined ? "null" : record;
  });
}

function withRecord({ id, json }: ChangeRow, record: string): JsonRow {
  return { id, json: `${json},"record":${record}}` };
}

/** @returns rows of changes without their records */
export function plainRowsOf(changes: readonly ChangeRow[]): readonly JsonRow[] {
  return changes.map(({ id, json }) => ({ id, json: `${json}}` }));
}

/** @returns changes with their records; `null` if one of them is large */
export async function smallRowsOf(
  session: Session,
  changes: readonly ChangeRow[],
): Promise<readonly JsonRow[] | null> {
  const records = await findRecords(session, changes, MAX_SHARED_BYTES);
  const rows: JsonRow[] = [];
  for (const [at, change] of changes.entries()) {
    const record = itemAt(records, at);
    if (record === null) return null;
    rows.push(withRecord(change, record));
  }
  return rows;
}

/** Yields changes with their records. A large record is in a slice by itself. */
export async function* slicesOf(
  session: Session,
  changes: readonly ChangeRow[],
): AsyncGenerator<readonly JsonRow[]> {
  const records = await findRecords(session, changes, MAX_SHARED_BYTES);
  let rows: JsonRow[] = [];
  /** The large record that was read last: the next change is often of the same one. */
  let large: { readonly of: ChangeRow; readonly json: string } | null = null;
  for (const [at, change] of changes.entries()) {
    const record = itemAt(records, at);
    if (record !== null) {
      rows.push(withRecord(change, record));
      continue;
    }
    yield rows;
    rows = [];
    if (large?.of.record_id !== change.record_id || large.of.isOfUser !== change.isOfUser) {
      const [found] = await findRecords(session, [change], Number.MAX_SAFE_INTEGER);
      large = { of: change, json: found ?? "null" };
    }
    yield [withRecord(change, large.json)];
  }
  yield rows;
}
