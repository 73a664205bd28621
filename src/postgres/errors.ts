/** What the errors of Bun.SQL and of the server mean. */
import { SQL } from "bun";
import { AppError, messageOf, systemCode } from "../error.ts";

export const UNIQUE_VIOLATION = "23505";
const FOREIGN_KEY_VIOLATION = "23503";

/** Two transactions were in each other's way, and this one was given up: it may be run again. */
const RETRYABLE = ["40001", "40P01"];

/**
 * What is in the way is not the request: the connection (08), its login (28, 3D), what the server has
 * left (53), a shutdown or a timeout (57, 55P03, 25P03), a standby (25006), the system (58).
 */
const TRANSIENT = /^(08|28|3D|53|57|58|55P03|25006|25P03|40)/;
/** It was reached, and a lock or a statement took longer than it may. */
const TIMED_OUT = /^(55P03|57014)$/;
const CONNECTION_LOST =
  /^ERR_POSTGRES_(CONNECTION|IDLE_TIMEOUT|LIFETIME_TIMEOUT|TLS|QUERY_CANCELLED)|^E[A-Z]+$/;

/** @returns the SQLSTATE that the server gave; empty for any other error */
export function sqlState(error: unknown): string {
  return error instanceof SQL.PostgresError ? (error.errno ?? "") : "";
}

export function isRetryable(error: unknown): boolean {
  return RETRYABLE.includes(sqlState(error));
}

export function isForeignKeyViolation(error: unknown): boolean {
  return sqlState(error) === FOREIGN_KEY_VIOLATION;
}

/** @returns unavailable, where the request may be sent again; any other error as it is */
export function toUnavailable(error: unknown): unknown {
  if (error instanceof AppError) return error;
  const state = sqlState(error);
  const transient = state === "" ? CONNECTION_LOST.test(systemCode(error)) : TRANSIENT.test(state);
  if (!transient) return error;
  const busy = TIMED_OUT.test(state);
  const problem = busy ? "is busy" : "cannot be reached at the moment";
  const unavailable = new AppError("unavailable", `the database ${problem}`);
  unavailable.cause = error;
  return unavailable;
}

/** What an error's SQLSTATE, or its code, with its message means to an operator; the first it begins with. */
const error_messages: readonly (readonly [code: string, message: string])[] = [
  ["ERR_POSTGRES_CONNECTION_REFUSED", "nothing answers at this address"],
  ["ERR_POSTGRES_CONNECTION_TIMEOUT", "nothing answers at this address"],
  ["ERR_POSTGRES_CONNECTION", "the server has closed the connection"],
  ["ERR_POSTGRES_TLS_NOT_AVAILABLE", "the server has no TLS, which the URL asks for"],
  [
    "08P01 unsupported startup parameter",
    "the pooler takes no settings of a connection: add prepare=false to the URL",
  ],
  ["25006", "it is a standby, or set to be read-only"],
  ["28", "the user or the password is wrong, or not allowed from here"],
  ["3D000", "there is no such database: make it with `createdb`"],
  [
    "42501",
    "the user may not do that: it must own the database's schema, or be allowed to make tables",
  ],
  ["53300", "the server has too many connections"],
  ["57P03", "the server is starting or ending"],
];

/**
 * @param attempt could not be done, e.g. `Cannot open postgres://localhost/a`
 * @returns the line for the operator; a bug as it is
 */
export function describePostgresError(attempt: string, error: unknown): unknown {
  const cause = error instanceof AppError && error.cause !== undefined ? error.cause : error;
  if (cause instanceof AppError) return new AppError("operator", `${attempt}: ${cause.message}`);
  if (cause instanceof URIError) {
    return new AppError("operator", `${attempt}: a % in the URL is to be written as %25`);
  }
  const text = `${sqlState(cause) || systemCode(cause)} ${messageOf(cause)}`;
  const [, message] = error_messages.find(([prefix]) => text.startsWith(prefix)) ?? [];
  // A TypeError is what the URL is refused with.
  const expected = cause instanceof SQL.SQLError || cause instanceof TypeError;
  if (message === undefined && !expected) return error;
  return new AppError("operator", `${attempt}: ${message ?? messageOf(cause)}`);
}
