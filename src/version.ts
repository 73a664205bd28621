import { fail } from "./error.ts";

/** The versions of a record that a caller accepts; `null` for any. */
export type AcceptedVersions = readonly number[] | null;

/** @throws {AppError} stale when the record's version is none of the accepted ones */
export function requireVersion(
  { version }: { readonly version: number },
  accepted: AcceptedVersions,
): void {
  if (accepted !== null && !accepted.includes(version)) {
    fail("stale", `the record has changed: it is at version ${version}`);
  }
}
