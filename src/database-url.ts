/** The URL of a database: a path selects SQLite, `postgres://…` selects PostgreSQL. */

/** Table layout on PostgreSQL: on one server, or orders distributed over several by Citus. */
export const postgresLayouts = ["plain", "citus"] as const;
export type PostgresLayout = (typeof postgresLayouts)[number];

export type DatabaseKind = "SQLite" | "PostgreSQL" | "Citus";

/** @returns whether this is the URL of a PostgreSQL database; otherwise it is the path of a SQLite file */
export function isPostgres(databaseUrl: string): boolean {
  return /^postgres(ql)?:/.test(databaseUrl);
}

/** @returns the URL without the password and the parameters; a path is returned unchanged */
export function redactPassword(databaseUrl: string): string {
  if (!isPostgres(databaseUrl)) return databaseUrl;
  const { protocol, username, host, pathname } = new URL(databaseUrl);
  return `${protocol}//${username === "" ? "" : `${username}@`}${host}${pathname}`;
}

/** What the names of the files next to a SQLite database end with. */
export const suffixes = {
  wal: "-wal",
  shm: "-shm",
  journal: "-journal",
  serverLock: "-serving",
  lastBackup: "-last-backup",
  archive: "-archive",
} as const;

/**
 * @returns the paths of a SQLite database and of the files next to it: those of SQLite, the lock of a server, and the
 * time of the last backup
 */
export function databaseFiles(databaseUrl: string): readonly string[] {
  if (isPostgres(databaseUrl)) return [];
  return ["", ...Object.values(suffixes)].map((suffix) => databaseUrl + suffix);
}

const SECONDS = { valid: /^\d{1,9}$/, problem: "must be a number of seconds" };

/** Parameters that are checked here, because the driver's own messages do not name them. The server checks the rest. */
const parameters: Readonly<Record<string, { valid: RegExp; problem: string }>> = {
  max: { valid: /^([1-9]\d{0,2}|1000)$/, problem: "must be an integer from 1 to 1000" },
  port: {
    valid: /^([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$/,
    problem: "must be a port number from 1 to 65535",
  },
  layout: { valid: /^(plain|citus)$/, problem: `must be ${postgresLayouts.join(" or ")}` },
  idle_timeout: SECONDS,
  max_lifetime: SECONDS,
  connect_timeout: SECONDS,
  prepare: { valid: /^(true|false)$/, problem: "must be true or false" },
  sslmode: {
    valid: /^(disable|allow|prefer|require|verify-ca|verify-full)$/,
    problem: "must be one of disable, allow, prefer, require, verify-ca, verify-full",
  },
};

/** @returns what is wrong with a parameter of the PostgreSQL URL; `null` if nothing is */
export function findInvalidParameter({ searchParams }: URL): string | null {
  for (const [name, value] of searchParams) {
    if (searchParams.getAll(name).length > 1)
      return `the parameter ${name} is given more than once`;
    const rule = parameters[name];
    if (rule?.valid.test(value) === false) return `the parameter ${name} ${rule.problem}`;
  }
  return null;
}

/** @returns the parameters except the layout. `URLSearchParams` would encode them in another way. */
function otherParameters({ search }: URL): readonly string[] {
  const parameters = search === "" ? [] : search.slice(1).split("&");
  return parameters.filter((parameter) => !/^layout(=|$)/.test(parameter));
}

/**
 * Separates the parameter `layout` of a PostgreSQL URL from those of the driver, which would send it to the server.
 * @param databaseUrl without invalid parameters
 * @returns the layout, `plain` by default, and the URL without it
 */
export function splitLayout(databaseUrl: string): { layout: PostgresLayout; driverUrl: string } {
  const url = new URL(databaseUrl);
  const layout = url.searchParams.get("layout") === "citus" ? "citus" : "plain";
  url.search = otherParameters(url).join("&");
  return { layout, driverUrl: url.href };
}

/** @returns the PostgreSQL URL with this layout instead of its own */
export function withLayout(databaseUrl: string, layout: PostgresLayout): string {
  const url = new URL(databaseUrl);
  url.search = [...otherParameters(url), `layout=${layout}`].join("&");
  return url.href;
}

export function databaseKind(databaseUrl: string): DatabaseKind {
  if (!isPostgres(databaseUrl)) return "SQLite";
  return splitLayout(databaseUrl).layout === "citus" ? "Citus" : "PostgreSQL";
}
