import type { Preconditions } from "../../src/domain/precondition.ts";

/** The preconditions of a request with `If-Match` for these versions. */
export function ifMatch(...versions: number[]): Preconditions {
  return { ifMatch: versions.map((version) => ({ version, weak: false })), ifNoneMatch: null };
}
