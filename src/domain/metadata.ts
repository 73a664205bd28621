import { type Static, Type } from "@sinclair/typebox";
import { failField } from "../base/error.ts";
import { Nullable, noExtraFields, Text } from "../base/schema.ts";
import { describeConstraint } from "../base/validator.ts";

export const MAX_METADATA_KEYS = 50;
/** 1 to 40 characters. The pattern spells out surrogate pairs, so that it works with and without the flag `u`. */
const metadataKey = Type.String({
  pattern: "^(?:[^\\u0000\\ud800-\\udfff]|[\\ud800-\\udbff][\\udc00-\\udfff]){1,40}$",
});
const metadataValue = Text({ maxLength: 500 });

export const Metadata = Type.Record(metadataKey, metadataValue, {
  ...noExtraFields,
  title: "Metadata",
  description: "Fields of your own, under names of 1 to 40 characters",
  maxProperties: MAX_METADATA_KEYS,
});
export type Metadata = Static<typeof Metadata>;

/** A JSON Merge Patch of metadata: `null` removes a key; `null` instead of an object resets to `{}`. */
export const MetadataPatch = Nullable(
  Type.Record(metadataKey, Nullable(metadataValue), noExtraFields),
);
export type MetadataPatch = Static<typeof MetadataPatch>;

/** @see RFC 7396. @throws {AppError} validation_failed if the result has too many keys */
export function patchMetadata(current: Metadata, patch: MetadataPatch | undefined): Metadata {
  if (patch === undefined) return current;
  if (patch === null) return {};
  // Assigning `result["__proto__"]` would not create a member.
  const merged = new Map(Object.entries(current));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) merged.delete(key);
    else merged.set(key, value);
  }
  const range = { min: 0, max: MAX_METADATA_KEYS };
  if (merged.size > range.max) failField("metadata", "length", describeConstraint(Metadata), range);
  return Object.fromEntries(merged);
}
