/** A page of a list and its exact total, with one statement, and so from one snapshot. */
import type { Page } from "../page.ts";
import type { PostgresLayout } from "../store.ts";
import type { Session, Value } from "./connection.ts";

/** What counts the rows of a list that is never walked to be counted; Citus has no triggers to count with. */
export const totals = {
  plain: {
    users: "select coalesce(sum(records), 0) from counts where list = 'users'",
    orders: "select coalesce(sum(records), 0) from counts where list <> 'users'",
    orders_in_status: "select coalesce(sum(records), 0) from counts where list = $3",
  },
  citus: {
    users: "select count(*) from users",
    orders: "select count(*) from orders",
    orders_in_status: "select count(*) from orders where status = $3",
  },
} as const satisfies Record<PostgresLayout, Record<string, string>>;

interface Parts {
  readonly columns: string;
  readonly table: "users" | "orders";
  /** Of `$3` and the next; empty for the whole table. */
  readonly where: string;
  /** A query for the total. */
  readonly total: string;
}

/** A statement of which `$1` and `$2` are limit and offset. The table's own id, since a column hides it. */
export function listStatement({ columns, table, where, total }: Parts): string {
  return `
    with
      list (matching) as materialized (
        select matching::float8 from (${total}) as counted (matching)
      ),
      page as materialized (
        select ${columns}
        from ${table}
        ${where}
        order by ${table}.id
        limit $1 offset $2
      )
    select list.matching, page.*
    from list
    left join page on true
    order by page.id
  `;
}

/** Without a page there is one row, for the total. */
export type ListRow<Row> = { readonly matching: number } & (Row | { readonly id: null });

export async function readPage<Row, Shown>(
  session: Session,
  statement: string,
  values: readonly Value[],
  fromRow: (row: Row) => Shown,
): Promise<Page<Shown>> {
  const rows = await session.all<ListRow<Row & { readonly id: number }>>(statement, ...values);
  const page = rows.filter((row): row is typeof row & { id: number } => row.id !== null);
  return { rows: page.map((row) => fromRow(row as unknown as Row)), total: rows[0]?.matching ?? 0 };
}
