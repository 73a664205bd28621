import { SQL } from "bun";

/** @returns an error as the server reports it. @param state its SQLSTATE */
export function serverError(state: string, { message = "failed" } = {}) {
  const details = { code: "ERR_POSTGRES_SERVER_ERROR", errno: state };
  return new SQL.PostgresError(message, details as never);
}
