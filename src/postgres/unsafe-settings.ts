/** Settings that the service relies on, but a pooler or the URL can change. */
import { type Session, settings } from "./connection.ts";

/** Their values depend on the connection. */
const unchecked: readonly string[] = [
  "application_name",
  "tcp_keepalives_idle",
  "tcp_keepalives_interval",
  "tcp_keepalives_count",
];
const expected = Object.entries({ ...settings, fsync: "on" }).filter(
  ([name]) => !unchecked.includes(name),
);

const readSettings = `
  select name, setting
  from pg_settings
  where name = any($1::text[])
`;

/**
 * Compares the settings of a connection with those that the service sets. They differ behind a pooler if the role does not have them,
 * and if a parameter of the URL overrides them.
 * @returns the dangers that follow
 */
export async function findUnsafeSettings(session: Session): Promise<readonly string[]> {
  const names = expected.map(([name]) => name);
  const rows = await session.all<{ name: string; setting: string }>(readSettings, names);
  const actual = new Map(rows.map(({ name, setting }) => [name, setting]));
  const dangers = ["fsync", "synchronous_commit"]
    .filter((name) => actual.get(name) === "off")
    .map((name) => `${name} is off in PostgreSQL: writes that were acknowledged can be lost`);
  const missing = expected
    .filter(([name, value]) => name !== "fsync" && actual.get(name) !== String(value))
    .map(([name, value]) => `${name} = '${value}'`);
  if (missing.length > 0) dangers.push(`the role in PostgreSQL should have ${missing.join(", ")}`);
  return dangers;
}
