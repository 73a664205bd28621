import { SQL } from "bun";
import { AppError, reason, systemCode } from "../error.ts";
import { sqlState } from "./failures.ts";

/** What an error's SQLSTATE, or its code, with its message means to an operator; the first it begins with. */
const reasons: readonly (readonly [code: string, meaning: string])[] = [
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
 * @param what could not be done, e.g. `Cannot open postgres://localhost/a`
 * @returns the line for the operator; a bug as it is
 */
export function operatorError(what: string, error: unknown): unknown {
  const cause = error instanceof AppError && error.cause !== undefined ? error.cause : error;
  if (cause instanceof AppError) return new AppError("operator", `${what}: ${cause.message}`);
  if (cause instanceof URIError) {
    return new AppError("operator", `${what}: a % in the URL is to be written as %25`);
  }
  const told = `${sqlState(cause) || systemCode(cause)} ${reason(cause)}`;
  const [, meaning] = reasons.find(([prefix]) => told.startsWith(prefix)) ?? [];
  // A TypeError is what the URL is refused with.
  const known = cause instanceof SQL.SQLError || cause instanceof TypeError;
  if (meaning === undefined && !known) return error;
  return new AppError("operator", `${what}: ${meaning ?? reason(cause)}`);
}
