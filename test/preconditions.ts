import type { Preconditions } from "../src/precondition.ts";

/** The preconditions of a request whose `If-Match` has the tags of these versions. */
export function ifMatch(...versions: number[]): Preconditions {
  return { if_match: versions.map((version) => ({ version, weak: false })), if_none_match: null };
}
