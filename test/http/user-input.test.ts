import { expect, test } from "bun:test";
import {
  badReferences,
  expectError,
  type Fields,
  metadataOf,
  newEmail,
  newUser,
  referenceRule,
  stored,
} from "./make.ts";
import { startSharedServer } from "./server.ts";

const server = await startSharedServer();

const emoji = "😀"; // One code point, two UTF-16 units, four bytes.
const secret = "hunter2-secret";
/** 255 code points, with labels of at most 60. */
const longEmail = `${secret.padEnd(59, "z")}@${`${"d".repeat(47)}.`.repeat(4)}com`;

/** A problem, or its beginning, and fields that have it. */
interface Rejected {
  readonly problem: string;
  readonly fields: Fields[];
}

const of = (field: string, ...values: unknown[]): Fields[] =>
  values.map((value) => ({ [field]: value }));
const entries = (...all: [key: string, value: unknown][]): Fields[] =>
  all.map(([key, value]) => ({ metadata: { [key]: value } }));
const unstorable = [`${secret}\u0000`, `${secret}\ud83d`, `\ude00${secret}`];
const textRule = "must be text without U+0000 and lone surrogates";

const rejected: Rejected[] = [
  {
    problem: "email must be an email address of at most 254 characters",
    fields: of(
      "email",
      // More are in schema.test.ts.
      ...["", secret, `${secret}@host`, `${secret}@xn--zz.example`, longEmail],
      ...[null, 12345, true, [], [secret], {}],
    ),
  },
  ...[" ", "\u200b"].map((character) => ({
    problem: `email must not have white space or invisible characters, such as U+${character === " " ? "0020" : "200B"}`,
    fields: of("email", `${character}${secret}@b.example`, `a@${secret}.example${character}`),
  })),
  {
    problem: `email ${textRule}`,
    fields: of(
      "email",
      ...unstorable.flatMap((part) => [`${part}@b.example`, `a@${part}.example`]),
    ),
  },
  {
    problem: "name must be text of 1 to 200 characters or null",
    fields: of("name", "", emoji.repeat(201), 98765, false, [secret], { a: secret }),
  },
  { problem: `name ${textRule}`, fields: of("name", ...unstorable) },
  { problem: referenceRule, fields: badReferences },
  { problem: `reference ${textRule}`, fields: of("reference", ...unstorable) },
  {
    problem: `metadata.k ${textRule}`,
    fields: unstorable.flatMap((value) => entries(["k", value])),
  },
  {
    problem: "metadata must be an object",
    fields: of("metadata", secret, 98765, true, [], [secret], metadataOf(51)),
  },
  { problem: 'metadata."" must have a name of 1 to 40 characters', fields: entries(["", secret]) },
  ...["k".repeat(41), emoji.repeat(41)].map((key) => ({
    problem: `metadata.${key} must have a name of 1 to 40 characters`,
    fields: entries([key, secret]),
  })),
  { problem: "metadata.k\0 must have a name without", fields: entries(["k\0", secret]) },
  { problem: "metadata.k\ufffd must have a name without", fields: entries(["k\ud800", secret]) },
  {
    problem: "metadata.k must be text of at most 500 characters",
    fields: [emoji.repeat(501), 98765, true, [secret]].flatMap((value) => entries(["k", value])),
  },
  { problem: "metadata.__proto__ must be text", fields: entries(["__proto__", { a: secret }]) },
  ...["id", "version", "created_at", "updated_at"].map((field) => ({
    problem: `${field} is read-only`,
    fields: of(field, secret),
  })),
  { problem: "nmae is not allowed", fields: of("nmae", secret) },
  { problem: "Email is not allowed", fields: of("Email", null) },
];
const rejectedIfComplete: Rejected[] = [
  { problem: "email is required", fields: of("email", undefined) },
  { problem: "metadata must be an object", fields: of("metadata", null) },
  { problem: "metadata.k must be text", fields: entries(["k", null]) },
];

for (const method of ["POST", "PUT", "PATCH"]) {
  test.each([...rejected, ...(method === "PATCH" ? [] : rejectedIfComplete)])(
    `${method} of a user stores nothing when $problem`,
    async ({ problem, fields }) => {
      const user = await newUser(server, { name: "Anne", metadata: { a: "1" } });
      const before = await stored(server, "/users?limit=1", `/users/${user.id}`);
      const path = method === "POST" ? "/users" : `/users/${user.id}`;
      const error = new RegExp(`^${RegExp.escape(`Validation failed: ${problem}`)}`);
      for (const some of fields) {
        const body = method === "PATCH" ? some : { email: newEmail(), ...some };
        expectError(await server.call(method, path, { body }), 400, error, secret);
      }
      expect(await stored(server, "/users?limit=1", `/users/${user.id}`)).toEqual(before);
    },
  );
}
