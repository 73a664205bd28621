/** Compares the version of a database's schema with the newest one that this program supports. */
import { fail } from "./error.ts";

/** @throws {AppError} operator if the schema is newer than this program */
export function requireSupported(version: number, newest: number): void {
  if (version <= newest) return;
  const limit = `this program supports versions up to ${newest}`;
  fail("operator", `the schema has version ${version}, but ${limit}: use a newer release`);
}

/** @throws {AppError} operator if the schema is older than this program */
export function requireCurrent(version: number, newest: number): void {
  if (version >= newest) return;
  const need = `this program needs version ${newest}`;
  fail(
    "operator",
    `the schema has version ${version}, but ${need}: run \`user-api migrate\` on this database`,
  );
}
