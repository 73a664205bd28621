import { type Static, Type } from "@sinclair/typebox";
import { emailKey } from "../base/email.ts";
import { Closed, Id, Named, Nullable, Parameter, Text } from "../base/schema.ts";
import type { IdempotencyKey } from "./idempotency.ts";
import { Metadata, MetadataPatch, patchMetadata } from "./metadata.ts";
import { pageQuery, recordFilters } from "./page.ts";
import type { Preconditions } from "./precondition.ts";
import type { Author, RecordText } from "./record.ts";
import { Reference, recordFields, requireRecordSize } from "./record.ts";
import type { RecordStore } from "./record-store.ts";

export const Email = Text({
  maxLength: 254,
  format: "email",
  description: "Stored as typed; unique in any spelling",
});
const name = Nullable(Text({ minLength: 1, maxLength: 200 }));

export const User = Named("User", {
  id: Id,
  email: Email,
  reference: Reference,
  name,
  metadata: Metadata,
  ...recordFields,
});
export type User = Static<typeof User>;

export const UserInput = Named("UserInput", {
  email: Email,
  reference: Type.Optional(Reference),
  name: Type.Optional(name),
  metadata: Type.Optional(Metadata),
});
export type UserInput = Static<typeof UserInput>;

/** Body of PATCH: a JSON Merge Patch (RFC 7396). */
export const UserPatch = Named("UserPatch", {
  ...Type.Partial(UserInput).properties,
  metadata: Type.Optional(MetadataPatch),
});
export type UserPatch = Static<typeof UserPatch>;

export const UserQuery = Closed({
  ...pageQuery,
  ...recordFilters,
  email: Parameter(Email, "Only the user with this email, in any spelling"),
});
export type UserQuery = Static<typeof UserQuery>;

export type UserFields = Pick<User, "email" | "reference" | "name" | "metadata">;

/** @throws {AppError} validation_failed if the user is too large */
export function userFields(input: UserInput): UserFields {
  const { email, reference = null, name = null, metadata = {} } = input;
  const fields = { email, reference, name, metadata };
  requireRecordSize(fields);
  return fields;
}

export function userRow({ email, reference, name, metadata }: UserFields) {
  const key = emailKey(email);
  return { email, email_key: key, reference, name, metadata: JSON.stringify(metadata) };
}

export type UserRow = ReturnType<typeof userRow>;

/** @throws {AppError} validation_failed if the patched metadata has too many keys, or the user is too large */
export function patchUser(user: User, patch: UserPatch): UserFields {
  const metadata = patchMetadata(user.metadata, patch.metadata);
  return userFields({ ...user, ...patch, metadata });
}

/** Whether it is the email of a user who was erased (docs/personal-data.md). No mail can be delivered to the domain. */
export function isErasedEmail(email: string): boolean {
  return /@erased\.invalid$/i.test(email);
}

/** @returns an email to which no mail can be delivered, for somebody who has none */
export function placeholderEmail(kind: string, name: string): string {
  const plain = /^[a-z\d._-]{1,200}$/.test(name) ? name : Bun.SHA256.hash(name, "hex");
  return `${kind}-${plain}@no-email.invalid`;
}

/** @returns the user without personal data. The email has a random part, so that no one can have taken it */
export function eraseUser(user: User): UserFields {
  const { id, email } = user;
  const isErased = email.startsWith(`${id}-`) && isErasedEmail(email);
  const erased = isErased ? email : `${id}-${crypto.randomUUID().slice(0, 8)}@erased.invalid`;
  return patchUser(user, { email: erased, name: null, metadata: null });
}

export interface UserStore extends RecordStore<User, UserQuery, UserFields, UserFields> {
  /** @returns `null` if there is none. @throws {AppError} version_mismatch, idempotency_key_reused, user_has_orders */
  remove(
    id: number,
    preconditions: Preconditions | null,
    key?: IdempotencyKey | null,
    author?: Author,
  ): Promise<RecordText<User> | null>;
}
