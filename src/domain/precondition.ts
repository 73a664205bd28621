import { fail } from "../base/error.ts";

/** Versions, `NaN` for a tag of no record. Weak tags match in `If-None-Match` only, `*` always. @see RFC 9110 §8.8.3 */
export type EntityTags = readonly { readonly version: number; readonly weak: boolean }[] | "*";

/** `null` for a field that the request does not have. @see RFC 9110 §13.1 */
export interface Preconditions {
  readonly ifMatch: EntityTags | null;
  readonly ifNoneMatch: EntityTags | null;
}

type Versioned = { readonly version: number };

/** @throws {AppError} version_mismatch if the request has an `If-Match` that does not match the record */
export function requireMatch({ version }: Versioned, preconditions: Preconditions | null): void {
  const tags = preconditions?.ifMatch ?? "*";
  if (tags === "*" || tags.some((tag) => !tag.weak && tag.version === version)) return;
  if (tags.some(({ weak }) => weak))
    fail("version_mismatch", "If-Match never matches a weak entity tag: send the tag without W/");
  fail("version_mismatch", `the record has changed: it is at version ${version}`);
}

export function matchesIfNoneMatch(record: Versioned, preconditions: Preconditions | null) {
  const tags = preconditions?.ifNoneMatch ?? [];
  return tags === "*" || tags.some(({ version }) => version === record.version);
}

/** In the order of RFC 9110 §13.2.2. @throws {AppError} version_mismatch if a precondition does not hold */
export function requirePreconditions(record: Versioned, preconditions: Preconditions | null): void {
  requireMatch(record, preconditions);
  const { version } = record;
  if (matchesIfNoneMatch(record, preconditions))
    fail("version_mismatch", `If-None-Match matches the record: it is at version ${version}`);
}
