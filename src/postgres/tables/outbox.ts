/**
 * The outbox has the changes that have no id yet. A write inserts its change in its own transaction, so the outbox has
 * it exactly if the write is committed: as a CTE of the statement that writes, which costs less than a trigger or another
 * statement. The totals of lists follow from it. @see migrations/0001_tables.sql
 */
import { changeCodeOf } from "../../domain/change.ts";
import { type OrderStatus, orderStatuses } from "../../domain/order.ts";

export const changeColumns = "type, record_id, version, status, token, created_at, fields";

/** Changes with their ids, and those of the outbox with the ids that they would get now. */
export const allChanges = `
  select id, ${changeColumns}
  from changes
  union all
  select
    (select last_id from feed_state) + pg_catalog.row_number() over (order by xid, type, record_id, version),
    ${changeColumns}
  from change_outbox
`;

/**
 * Conditions on rows of the outbox: those that have no id yet fulfill one of them. With the bounds 0 and 2^63 - 1,
 * which exclude none, PostgreSQL expects few rows and uses the index. Otherwise it can read all rows that were deleted
 * since the last VACUUM.
 */
export function whenUnnumbered(state: string): readonly [string, string] {
  return [
    `change_outbox.xid between ${state}.next_xid and 9223372036854775807`,
    `change_outbox.xid = any(${state}.open_xids) and change_outbox.xid between 0 and ${state}.next_xid - 1`,
  ];
}

const arrayOf = (names: readonly string[]): string => `array['${names.join("', '")}']`;

export const statusCodeOf = (status: string): string =>
  `pg_catalog.array_position(${arrayOf(orderStatuses)}, ${status})`;

export type Total = "users" | OrderStatus;

/** In the order of `change_feed.totals`. */
export const totals: readonly Total[] = ["users", ...orderStatuses];

/** @param isIn returns a condition: the orders of a status are counted. @param status an expression of its code */
function addedIf(isIn: (status: string) => string): string {
  const added = (status: string) => `coalesce((${isIn(status)})::integer, 0)`;
  return `${added("status")} - ${added("status_before")}`;
}

function addedTo(parts: readonly Total[]): string {
  if (parts.includes("users")) {
    const [created, deleted] = [changeCodeOf("user.created"), changeCodeOf("user.deleted")];
    return `(type = ${created})::integer - (type = ${deleted})::integer`;
  }
  const codes = parts.map((total) => totals.indexOf(total)).join(", ");
  return addedIf((status) => `${status} in (${codes})`);
}

/** @param counted those after the last numbered change. @param added by a change of the outbox */
function totalWith(counted: string, added: string): string {
  const sums = whenUnnumbered("state").map(
    (condition) =>
      `(select coalesce(pg_catalog.sum(${added}), 0) from change_outbox where ${condition})`,
  );
  return `
    select ${counted} + ${sums.join(" + ")} as total
    from (select * from change_feed order by xid desc limit 1) as state
  `;
}

/** @returns a query for the users or these orders now, `total` */
export function totalOf(...parts: readonly Total[]): string {
  const counted = parts.map((total) => `totals[${totals.indexOf(total) + 1}]`).join(" + ");
  return totalWith(counted, addedTo(parts));
}

/** As `totalOf`. @param statuses an expression, an array of them */
export function totalIn(statuses: string): string {
  const counted = orderStatuses.map(
    (status, at) => `case when '${status}' = any(${statuses}) then totals[${at + 2}] else 0 end`,
  );
  const isIn = (status: string) => `(${arrayOf(orderStatuses)})[${status}] = any(${statuses})`;
  return totalWith(counted.join(" + "), addedIf(isIn));
}
