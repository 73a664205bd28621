import type { Database, Session, Value } from "../../src/postgres/server/connection.ts";

interface Sent {
  readonly statement: string;
  readonly values: readonly Value[];
}

/**
 * @param before is called before each statement
 * @returns the database, and the statements that are sent with values
 */
export function recordStatements(
  opened: Database,
  before?: (statement: string) => Promise<unknown> | undefined,
) {
  const sent: Sent[] = [];
  const record = (session: Session): Session => ({
    ...session,
    async all(statement, ...values) {
      sent.push({ statement, values });
      await before?.(statement);
      return session.all(statement, ...values);
    },
    async first(statement, ...values) {
      sent.push({ statement, values });
      await before?.(statement);
      return session.first(statement, ...values);
    },
  });
  const run: Database["run"] = (kind, work, options) =>
    opened.run(kind, (session) => work(record(session)), options);
  return { db: { ...opened, run }, sent };
}
