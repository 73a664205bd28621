import type { Database, Session, Value } from "../../src/postgres/server/connection.ts";

interface Sent {
  readonly statement: string;
  readonly values: readonly Value[];
}

/** @returns the database, and the statements that are sent with values */
export function recordStatements(opened: Database) {
  const sent: Sent[] = [];
  const record = (session: Session): Session => ({
    ...session,
    all(statement, ...values) {
      sent.push({ statement, values });
      return session.all(statement, ...values);
    },
    first(statement, ...values) {
      sent.push({ statement, values });
      return session.first(statement, ...values);
    },
  });
  const run: Database["run"] = (kind, work, options) =>
    opened.run(kind, (session) => work(record(session)), options);
  return { db: { ...opened, run }, sent };
}
