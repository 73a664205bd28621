/** Whether a database is what it must be: all that is kept beside the rows, and what they add up to. */
import type { PostgresLayout } from "../store.ts";
import type { Database, Session } from "./connection.ts";
import { lastId } from "./transfer.ts";

/** How many findings of a kind are told. */
const MAX_FINDINGS = 10;

const miscounted_lists = `
  select list
  from (
    select list, sum(records) as records from counts group by list
    union all
    select 'users', -count(*) from users
    union all
    select status, -count(*) from orders group by status
  ) as changes
  group by list
  having sum(records) <> 0
  order by list
`;
const miscounted_orders = `
  select id::text as id
  from orders
  where total <> (
    select sum((item ->> 'quantity')::numeric * (item ->> 'unit_price')::numeric)
    from json_array_elements(items::json) as item
  )
  limit ${MAX_FINDINGS}
`;
const orphans = `
  select orders.id::text as id
  from orders
  left join users on users.id = orders.user_id
  where users.id is null
  limit ${MAX_FINDINGS}
`;

function lastKept(table: "users" | "orders"): string {
  return `
    select coalesce(max(id), 0)::float8 as last
    from ${table}
  `;
}

/** @returns what is wrong, a sentence each; empty for a sound database */
export async function findAll(
  session: Session,
  layout: PostgresLayout,
): Promise<readonly string[]> {
  const findings: string[] = [];
  if (layout === "plain") {
    for (const { list } of await session.all<{ list: string }>(miscounted_lists)) {
      findings.push(`the total of ${list} is wrong`);
    }
  }
  for (const { id } of await session.all<{ id: string }>(miscounted_orders)) {
    findings.push(`the total of order ${id} is not that of its items`);
  }
  for (const { id } of await session.all<{ id: string }>(orphans)) {
    findings.push(`order ${id} is of a user who is not there`);
  }
  for (const table of ["users", "orders"] as const) {
    const kept = await session.first<{ last: number }>(lastKept(table));
    const given = await session.first<{ last: number }>(lastId(table));
    if ((kept?.last ?? 0) > (given?.last ?? 0)) {
      findings.push(`the sequence of ${table} is behind the last id, and would give it again`);
    }
  }
  return findings;
}

/** Walks all there is, from one snapshot, however long it takes. @see Store.check */
export function checkDatabase(db: Database, layout: PostgresLayout): Promise<readonly string[]> {
  const walk = async (session: Session) => {
    await session.script("set local statement_timeout = 0");
    return findAll(session, layout);
  };
  const mode = "isolation level repeatable read read only";
  return db.transact(walk, { kind: "read", mode, patience_ms: Number.POSITIVE_INFINITY });
}
