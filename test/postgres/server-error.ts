import { SQL } from "bun";

/** @returns an error as the server reports it. @param state its SQLSTATE; `where` is its context */
export function serverError(
  state: string,
  { message = "failed", where }: { readonly message?: string; readonly where?: string } = {},
): SQL.PostgresError {
  const details = { code: "ERR_POSTGRES_SERVER_ERROR", errno: state, where };
  return new SQL.PostgresError(message, details as never);
}

/** A statement has waited too long for a row. */
export const rowLockTimeout: SQL.PostgresError = serverError("55P03", {
  where: "while locking tuple",
});
