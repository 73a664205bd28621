import { fail } from "../error.ts";

/** @throws {AppError} stale when `if_match` lists versions and the record's is none of them */
export function requireVersion(
  { version }: { readonly version: number },
  if_match: readonly number[] | null,
): void {
  if (if_match !== null && !if_match.includes(version)) {
    fail("stale", `the record is at version ${version}, which If-Match does not name`);
  }
}
