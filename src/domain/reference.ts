import { fail } from "../base/error.ts";
import { Nullable, Text } from "../base/schema.ts";

const text = {
  minLength: 1,
  maxLength: 255,
  // No control characters, and no white space at the ends.
  pattern: String.raw`^[^\s\x00-\x1f\x7f-\x9f](?:[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?$`,
  description: "The id that another system has for this one. Unique",
};

/** What another system calls a record. Unique among users and among orders, and compared by code points. */
export const Reference = Nullable(Text(text));
/** In the query of a list. */
export const ReferenceFilter = Text(text);

export function failReferenceTaken(): never {
  fail("reference_taken", "reference is already taken");
}
