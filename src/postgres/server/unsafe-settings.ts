/** Settings that a connection should have, but does not: a pooler takes those of the role. */
import type { Session, Settings } from "./connection.ts";

/** Their values depend on the connection, or concern one kind of server only. */
const UNCHECKED = /^(application_name|default_transaction_read_only|tcp_keepalives_\w+)$/;
/** If one of them is off, a commit may not be on disk. */
const durability: readonly string[] = ["fsync", "synchronous_commit"];

const readSettings = `
  select name, setting
  from pg_catalog.pg_settings
  where name = any($1::text[])
`;

export async function findUnsafeSettings(session: Session, settings: Settings) {
  const names = [...Object.keys(settings), ...durability];
  const rows = await session.all<{ name: string; setting: string }>(readSettings, names);
  const actual = new Map(rows.map(({ name, setting }) => [name, setting]));
  const dangers = durability
    .filter((name) => actual.get(name) === "off")
    .map((name) => `${name} is off in PostgreSQL: writes that were acknowledged can be lost`);
  const missing = Object.entries(settings)
    .filter(([name]) => !UNCHECKED.test(name) && !durability.includes(name))
    // A server without Citus does not know its settings.
    .filter(([name, value]) => actual.has(name) && actual.get(name) !== String(value))
    .map(([name, value]) => `${name} = '${value}'`);
  if (missing.length > 0) dangers.push(`the role in PostgreSQL should have ${missing.join(", ")}`);
  return dangers;
}
