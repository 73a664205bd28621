/** Where orders are. On one server they are in one table; citus.ts has what is different on several. */
import type { Order } from "../../domain/order.ts";
import type { RecordTable, RecordText } from "../../domain/record.ts";
import { type Filters, type Session, type Settings, selectWhere } from "./connection.ts";

export interface Placement {
  readonly settings: Settings;
  readonly orderIds: string;
  /** The tables that have the ids and unique values of the records; that of orders also their users. */
  readonly uniqueTables: Readonly<Record<RecordTable, string>>;
  /**
   * What the statement that creates orders inserts instead of them, from `decided where is_created`; the orders are then
   * inserted by a separate statement. `null` if it inserts the orders.
   */
  readonly insertIndex: string | null;
  /**
   * A CTE of a statement that gives orders other users or references. `$2` are their ids, `input` has their values, and
   * `written` the orders, which it deletes and inserts. `null` if these columns are updated as any other.
   */
  readonly updateIndex: string | null;
  /** A condition of a statement that changes orders, whose `$3` is an array of their users. */
  readonly ofUsers: string;
  /** In any order. @param columns those of a `RecordText`. @param filters at least one is the id or the reference */
  readonly findOrders: (
    session: Session,
    columns: string,
    filters: Filters,
  ) => Promise<readonly RecordText<Order>[]>;
  /** Statements at the beginning of a transaction that writes many rows of several tables. */
  readonly beforeCopy: readonly string[];
  /** Statements at the beginning of other transactions that write. If there are none, a batch need not be one. */
  readonly beforeWrite: readonly string[];
  /** The largest offset of a list of all orders; `null` for no limit. With one, no statement reads several pages of orders. */
  readonly maxOffset: number | null;
  readonly checks: readonly (readonly [section: string, problems: string])[];
}

export function sequenceOf(table: string, { orderIds }: Placement): string {
  return table === "orders" ? orderIds : `${table}_id_seq`;
}

export const oneServer: Placement = {
  // Otherwise PostgreSQL plans most statements anew each time, which takes longer than to run them.
  settings: { plan_cache_mode: "force_generic_plan" },
  orderIds: "orders_id_seq",
  uniqueTables: { users: "users", orders: "orders" },
  insertIndex: null,
  updateIndex: null,
  // So that the parameter has a type.
  ofUsers: "$3::bigint[] is not null",
  findOrders: (session, columns, filters) => selectWhere(session, columns, "orders", filters),
  beforeCopy: [],
  beforeWrite: [],
  maxOffset: null,
  checks: [],
};
