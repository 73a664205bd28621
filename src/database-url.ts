/** The URL of a database: a path selects SQLite, `postgres://…` selects PostgreSQL. */

/** Table layout on PostgreSQL: on one server, or orders distributed over several by Citus. */
export const postgres_layouts = ["plain", "citus"] as const;
export type PostgresLayout = (typeof postgres_layouts)[number];

/** @returns whether this is the URL of a PostgreSQL database; otherwise it is the path of a SQLite file */
export function isPostgres(database_url: string): boolean {
  return /^postgres(ql)?:/.test(database_url);
}

/** @returns the URL without the password and the parameters; a path is returned unchanged */
export function redactPassword(database_url: string): string {
  if (!isPostgres(database_url)) return database_url;
  const { protocol, username, host, pathname } = new URL(database_url);
  return `${protocol}//${username === "" ? "" : `${username}@`}${host}${pathname}`;
}
