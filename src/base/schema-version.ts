/** Each throws {AppError} operator if the schema of a database does not fit the newest one of this program. */
import { fail } from "./error.ts";

function failVersion(version: number, problem: string): never {
  fail("operator", `the schema has version ${version}, but this program ${problem}`);
}

export function requireSupported(version: number, newest: number): void {
  if (version > newest)
    failVersion(version, `supports versions up to ${newest}: use a newer release`);
}

export function requireCurrent(version: number, newest: number): void {
  if (version < newest)
    failVersion(version, `needs version ${newest}: run \`user-api migrate\` on this database`);
}
