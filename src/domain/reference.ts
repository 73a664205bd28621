import { fail } from "../base/error.ts";
import { Nullable, Text, TRIMMED_PATTERN } from "../base/schema.ts";

export const ReferenceText = Text({
  minLength: 1,
  maxLength: 255,
  pattern: TRIMMED_PATTERN,
  description: "The id that another system has for this one. Unique",
});

/** What another system calls a record. Unique among users and among orders, and compared by code points. */
export const Reference = Nullable(ReferenceText);

export function failReferenceTaken(): never {
  fail("reference_taken", "reference is already taken");
}
