import type { Session, Value } from "./connection.ts";

/** Values of columns; several of a column of numbers. */
export type Filters = Readonly<Record<string, string | number | readonly number[] | undefined>>;

function conditionOf(filters: Filters): readonly [condition: string, values: Value[]] {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined);
  const conditions = given.map(([name, value], at) => {
    if (typeof value === "object") return `${name} = any($${at + 1}::bigint[])`;
    return `${name} = $${at + 1}::${typeof value === "number" ? "bigint" : "text"}`;
  });
  return [conditions.join(" and "), given.map(([, value]) => value as Value)];
}

/** @returns these columns of the rows that match, in any order */
export function selectWhere<Row>(
  session: Session,
  columns: string,
  table: string,
  filters: Filters,
): Promise<readonly Row[]> {
  const [condition, values] = conditionOf(filters);
  return session.all(`select ${columns} from ${table} where ${condition}`, ...values);
}
