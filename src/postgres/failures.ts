/** What the errors of Bun.SQL and of the server mean. */
import { SQL } from "bun";
import { AppError, systemCode } from "../error.ts";

export const UNIQUE_VIOLATION = "23505";
const FOREIGN_KEY_VIOLATION = "23503";

/** Two transactions were in each other's way, and this one was given up: it may be run again. */
const RUN_AGAIN = ["40001", "40P01"];

/**
 * What is in the way is not the request: the connection (08), its login (28, 3D), what the server has
 * left (53), a shutdown or a timeout (57, 55P03, 25P03), a standby (25006), the system (58).
 */
const PASSING = /^(08|28|3D|53|57|58|55P03|25006|25P03|40)/;
/** It was reached, and a lock or a statement took longer than it may. */
const TOO_LONG = /^(55P03|57014)$/;
const LOST =
  /^ERR_POSTGRES_(CONNECTION|IDLE_TIMEOUT|LIFETIME_TIMEOUT|TLS|QUERY_CANCELLED)|^E[A-Z]+$/;

/** @returns the SQLSTATE that the server gave; empty for any other error */
export function sqlState(error: unknown): string {
  return error instanceof SQL.PostgresError ? (error.errno ?? "") : "";
}

export function mayRunAgain(error: unknown): boolean {
  return RUN_AGAIN.includes(sqlState(error));
}

export function isForeignKeyViolation(error: unknown): boolean {
  return sqlState(error) === FOREIGN_KEY_VIOLATION;
}

/** @returns unavailable, where the request may be sent again; any other error as it is */
export function asUnavailable(error: unknown): unknown {
  if (error instanceof AppError) return error;
  const state = sqlState(error);
  const passing = state === "" ? LOST.test(systemCode(error)) : PASSING.test(state);
  if (!passing) return error;
  const busy = TOO_LONG.test(state);
  const problem = busy ? "is busy" : "cannot be reached at the moment";
  const refusal = new AppError("unavailable", `the database ${problem}`);
  refusal.cause = error;
  return refusal;
}
