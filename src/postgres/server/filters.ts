import type { Session, Value } from "./connection.ts";

export type Filters = Readonly<Record<string, string | number | readonly number[] | undefined>>;

export function selectWhere<Row>(
  session: Session,
  columns: string,
  table: string,
  filters: Filters,
): Promise<readonly Row[]> {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined);
  const conditions = given.map(([name, value], at) => {
    if (typeof value === "object") return `${name} = any($${at + 1}::bigint[])`;
    return `${name} = $${at + 1}::${typeof value === "number" ? "bigint" : "text"}`;
  });
  const select = `select ${columns} from ${table} where ${conditions.join(" and ")}`;
  return session.all(select, ...given.map(([, value]) => value as Value));
}
