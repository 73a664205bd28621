/** Verifies what only the layout for Citus has: the directory of ids, and its totals. */
import { orderStatuses } from "../../order.ts";
import { commonSections, findChangeGaps, MAX_FINDINGS, type Section } from "../check.ts";
import type { Session } from "../connection.ts";
import { BUCKETS } from "./bucket.ts";
import { citusCopySourceOf } from "./copy-source.ts";

const miscountedUsers = `
  select stored - counted as difference
  from (select coalesce(sum(users), 0) as stored from user_totals) as totals,
    (select count(*) as counted from users) as counts
  where stored <> counted
`;
/** The number of orders in each bucket, by status. */
export const countedOrders = `
  select bucket,
    ${orderStatuses.map((name) => `count(*) filter (where status = '${name}') as ${name}`).join(", ")}
  from orders
  group by bucket
`;
const miscountedBuckets = `
  select order_totals.bucket
  from order_totals
  left join (${countedOrders}) as counted on counted.bucket = order_totals.bucket
  where ${orderStatuses.map((name) => `order_totals.${name} <> coalesce(counted.${name}, 0)`).join(" or ")}
  limit ${MAX_FINDINGS}
`;
const storedBuckets = "select count(*)::integer as buckets from order_totals";
/** Sums instead of a join, which Citus would perform by sending one of the tables to all servers. */
const directorySums = `
  select count(*)::text as entries, sum(order_id::numeric)::text as ids,
    sum(order_id::numeric * bucket)::text as products
  from order_buckets
`;
const copiedSums = `
  select count(*)::text as entries, sum(id::numeric)::text as ids,
    sum(id::numeric * bucket)::text as products
  from orders
  where id % ${BUCKETS} <> bucket
`;

async function findMiscounts(session: Session): Promise<readonly string[]> {
  const users = await session.all(miscountedUsers);
  const buckets = await session.all<{ bucket: number }>(miscountedBuckets);
  const stored = await session.first<{ buckets: number }>(storedBuckets);
  return [
    ...users.map(() => "the total of users is wrong"),
    ...buckets.map(({ bucket }) => `the totals of orders in bucket ${bucket} are wrong`),
    ...(stored?.buckets === BUCKETS ? [] : ["totals of orders are missing"]),
  ];
}

async function findWrongDirectory(session: Session): Promise<readonly string[]> {
  const directory = await session.first<object>(directorySums);
  const orders = await session.first<object>(copiedSums);
  if (Bun.deepEquals(directory, orders)) return [];
  return ["the directory of order ids does not match the orders"];
}

export const citusSections: readonly Section[] = [
  ["the totals", findMiscounts],
  ["the directory of order ids", findWrongDirectory],
  ...commonSections(citusCopySourceOf),
  ["the sequence of changes", findChangeGaps],
];
