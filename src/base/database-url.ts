/** The URL of a database: a path selects SQLite, `postgres://…` selects PostgreSQL. */
import { fail } from "./error.ts";

export function isPostgres(databaseUrl: string): boolean {
  return /^postgres(ql)?:/.test(databaseUrl);
}

/** @returns the URL without the password and the parameters; a path is returned unchanged */
export function redactPassword(databaseUrl: string): string {
  if (!isPostgres(databaseUrl)) return databaseUrl;
  const { protocol, username, host, pathname } = new URL(databaseUrl);
  return `${protocol}//${username === "" ? "" : `${username}@`}${host}${pathname}`;
}

export const suffixes = {
  wal: "-wal",
  shm: "-shm",
  journal: "-journal",
  serverLock: "-serving",
  lastBackup: "-last-backup",
  archive: "-archive",
} as const;

/** @returns the paths of a SQLite database and of the files next to it; none for PostgreSQL */
export function databaseFiles(databaseUrl: string): readonly string[] {
  if (isPostgres(databaseUrl)) return [];
  return ["", ...Object.values(suffixes)].map((suffix) => databaseUrl + suffix);
}

const SECONDS = [/^\d{1,9}$/, "must be a number of seconds"] as const;
const PORT = /^([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$/;
const sslModes = "disable, allow, prefer, require, verify-ca, verify-full";

/** Parameters that are checked here, because the driver accepts some that are wrong. The server checks the rest. */
const parameters: Readonly<Record<string, readonly [valid: RegExp, problem: string]>> = {
  max: [/^([1-9]\d{0,2}|1000)$/, "must be an integer from 1 to 1000"],
  port: [PORT, "must be a port number from 1 to 65535"],
  idle_timeout: SECONDS,
  max_lifetime: SECONDS,
  connect_timeout: SECONDS,
  prepare: [/^(true|false)$/, "must be true or false"],
  sslmode: [new RegExp(`^(${sslModes.replaceAll(", ", "|")})$`), `must be one of ${sslModes}`],
};

/** Of a URL or a connection string, also with a typing error. With `./` before it, any file can be named. */
const LIKE_URL = /^[^/]*(?:[:=]|\/\/)|^[^./].*\?/s;

/** @returns the URL. @throws {AppError} operator, saying what it must be, without repeating it: it can contain a password */
export function parseDatabaseUrl(text: string): string {
  // A malformed URL must not be used as a path: the file name would contain the password.
  if (/^[\s"'`]|[\s"'`]$/.test(text)) fail("operator", "must not be enclosed in spaces or quotes");
  if (!isPostgres(text)) {
    // SQLite opens a temporary database for an empty path, and deletes it on close.
    if (text.trim() === "") fail("operator", "must be a path");
    if (!LIKE_URL.test(text)) return text;
    fail("operator", "must be a path, e.g. data/user-api.db or ./name, or postgres://…");
  }
  // Without a name PostgreSQL selects the database that is named after the user.
  const url = text.includes("://") ? URL.parse(text) : null;
  const hasName = url !== null && (url.pathname.length > 1 || url.searchParams.has("dbname"));
  // The name is logged, and must not contain parameters that belong after a question mark.
  if (!hasName || /(?:[;&]|%20)\w+=/.test(url.pathname)) {
    const advice = "write @ : / # ? % in a password as %40 %3A %2F %23 %3F %25";
    fail("operator", `must be a URL such as postgres://user@localhost/user_api; ${advice}`);
  }
  for (const [name, value] of url.searchParams) {
    if (url.searchParams.getAll(name).length > 1)
      fail("operator", `the parameter ${name} is given more than once`);
    const [valid, problem] = parameters[name] ?? [];
    if (valid?.test(value) === false) fail("operator", `the parameter ${name} ${problem}`);
  }
  return text;
}
