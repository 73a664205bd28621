import { fail, messageOf } from "../../base/error.ts";
import type { Schema } from "../../base/schema.ts";
import { changeChecks } from "../../domain/change-checks.ts";
import { tablesWithSequence } from "../../domain/copy.ts";
import { Order } from "../../domain/order.ts";
import { MAX_RECORD_BYTES, type RecordTable } from "../../domain/record.ts";
import { User } from "../../domain/user.ts";
import type { Session } from "../server/connection.ts";
import { sqlState } from "../server/errors.ts";
import type { Placement } from "../server/placement.ts";
import { recordJson } from "../tables/columns.ts";
import { allChanges, totalOf, totals } from "../tables/outbox.ts";
import { findLateId } from "./rows.ts";

type Find = (session: Session) => Promise<readonly string[]>;
type Section = readonly [name: string, find: Find];

const MAX_FINDINGS = 10;

const miscountedLists = `
  select pg_catalog.format('the total of %s is wrong', list) as problem
  from (
    ${totals.map((list) => `select '${list}' as list, (${totalOf(list)}) as records union all`).join(" ")}
    select 'users', -pg_catalog.count(*) from users
    union all
    select status, -pg_catalog.count(*) from orders group by status
  ) as changes
  group by list
  having pg_catalog.sum(records) <> 0::numeric
  order by list
`;
const miscountedOrders = `
  select pg_catalog.format('the total of order %s does not match its items', id) as problem
  from orders
  where total::numeric <> (
    select pg_catalog.sum((item ->> 'quantity'::text)::numeric * (item ->> 'unit_price'::text)::numeric)
    from pg_catalog.json_array_elements(items::json) as item
  )
`;
const orphans = `
  select pg_catalog.format('order %s refers to a missing user', orders.id) as problem
  from orders
  left join users on users.id = orders.user_id
  where users.id is null
`;

/** SQLSTATEs of damaged data: malformed values (22), a missing table (42P01), corruption (XX), I/O error (58030). */
const DAMAGE = /^(22|42P01|58030|XX)/;

function findBy(statement: string): Find {
  return async (session) => {
    const rows = await session.all<{ problem: string }>(`${statement} limit ${MAX_FINDINGS}`);
    return rows.map(({ problem }) => problem);
  };
}

const uncounted = "select from feed_state where not is_whole";

const findMiscounted: Find = async (session) => {
  const findings = await findBy(miscountedLists)(session);
  if (findings.length === 0 || (await session.first(uncounted)) === null) return findings;
  fail("operator", "the database was restored: run `user-api migrate`, which counts its records");
};

function findLarge(table: RecordTable, record: Schema): Find {
  return findBy(`
    select pg_catalog.format('row %s of ${table} is larger than ${MAX_RECORD_BYTES} bytes of JSON', id) as problem
    from ${table}
    where pg_catalog.octet_length(${recordJson(record)}) > ${MAX_RECORD_BYTES}
  `);
}

/** In the order of the report. */
function sectionsOf(placement: Placement): readonly Section[] {
  return [
    ["the totals", findMiscounted],
    ...placement.checks.map(([name, problems]): Section => [name, findBy(problems)]),
    ["the totals of orders against their items", findBy(miscountedOrders)],
    ["the references between rows", findBy(orphans)],
    ["the size of users", findLarge("users", User)],
    ["the size of orders", findLarge("orders", Order)],
    ...tablesWithSequence.map((table): Section => {
      const finding = `the sequence of ${table} is behind the last id and would assign it again`;
      const find: Find = async (session) =>
        (await findLateId(session, placement, table)) === null ? [] : [finding];
      return [`the sequence of ${table}`, find];
    }),
    ...changeChecks(allChanges, "pg_catalog.").map(
      ([name, problems]): Section => [name, findBy(problems)],
    ),
  ];
}

/** If damage makes a section unreadable, this becomes a finding, and the next one is checked. @param session in a transaction */
export async function findProblems(session: Session, placement: Placement) {
  const findings: string[] = [];
  // The sections read whole tables.
  await session.script("set local enable_seqscan = on");
  for (const [name, find] of sectionsOf(placement)) {
    // Without a savepoint, an error would abort the whole transaction.
    await session.script("savepoint section");
    try {
      findings.push(...(await find(session)));
      await session.script("release savepoint section");
    } catch (error) {
      if (!DAMAGE.test(sqlState(error))) throw error;
      await session.script("rollback to savepoint section");
      findings.push(`cannot check ${name}: ${messageOf(error)}`);
    }
  }
  return findings;
}
