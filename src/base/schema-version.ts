/** Each throws {AppError} operator if the schema of a database does not fit the newest one of this program. */
import { fail } from "./error.ts";

export function requireSupported(version: number, newest: number): void {
  if (version <= newest) return;
  const limit = `this program supports versions up to ${newest}`;
  fail("operator", `the schema has version ${version}, but ${limit}: use a newer release`);
}

export function requireCurrent(version: number, newest: number): void {
  if (version >= newest) return;
  const need = `this program needs version ${newest}`;
  fail(
    "operator",
    `the schema has version ${version}, but ${need}: run \`user-api migrate\` on this database`,
  );
}
