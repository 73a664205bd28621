import { afterAll, expect, test } from "bun:test";
import { expectError, type Fields, newEmail, newUser, stored } from "./make.ts";
import { startServer } from "./server.ts";

const server = await startServer();
afterAll(() => server[Symbol.asyncDispose]());

const emoji = "😀"; // One code point, two UTF-16 units, four bytes.
const keys = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`key_${at}`, "v"]));
/** @returns a valid email of `length` code points, with labels of at most 60 */
const longEmail = (length: number) =>
  `${crypto.randomUUID().padEnd(length - 196, "z")}@${`${"d".repeat(47)}.`.repeat(4)}com`;

const full = { name: "Anne", metadata: { a: "1", b: "2" } };

/** A row of a table of invalid input. `hidden` must not appear in the response. */
interface RejectedInput {
  name: string;
  fields: Fields;
  error: string | RegExp;
  hidden?: string;
}

const secret = "hunter2-secret";
const row = (
  field: string,
  value: unknown,
  error: string | RegExp,
  hidden = secret,
): RejectedInput => {
  const name = `${field} is ${JSON.stringify(value)?.slice(0, 40)}`;
  return { name, fields: { [field]: value }, error, hidden };
};
const storable = "text without U\\+0000 and lone surrogates";
const rules: Record<string, string> = {
  email: `email must be (an email address of at most 254 characters|${storable})$`,
  name: `name must be (text of 1 to 200 characters or null|${storable})$`,
  metadata: "metadata\\S* must ",
};
const must = (field: string) => new RegExp(`^Validation failed: ${rules[field]}`);
const wrong_values: Record<string, unknown[]> = {
  email: [
    ...["", secret, `${secret}@`, `@${secret}.example`, `${secret}@host`, `a ${secret}@b.example`],
    ...[`${secret}@a b.example`, `${secret}@.example`, `${secret}@b.`, `${secret}@a..example`],
    ...[`a@${secret}@b.example`, ` ${secret}@b.example`, `${secret}@b.example\n`],
    ...[`\u007f${secret}@b.example`, `\u0085${secret}@b.example`, `${secret}\u0000@b.example`],
    ...[`${secret}\ud800@b.example`, `${secret}@\udc00b.example`, 12345, true, [], [secret], {}],
  ],
  name: [
    ...["", emoji.repeat(201), `${secret}\u0000`, `${secret}\ud83d`, `\ude00${secret}`],
    ...[98765, false, [secret], { a: secret }],
  ],
  metadata: [
    ...[secret, 98765, true, [], [secret], keys(51)],
    ...["", "k".repeat(41), emoji.repeat(41), "k\u0000", "k\ud800"].map((key) => ({
      [key]: secret,
    })),
    ...["s".repeat(501), emoji.repeat(501), `${secret}\u0000`, `${secret}\udfff`].map((k) => ({
      k,
    })),
    ...[98765, 1.5, true, [], [secret], {}, { a: secret }].map((k) => ({ k })),
    ...[98765, { a: secret }].map((value) => ({ ["__proto__"]: value })),
  ],
};
const rejected: RejectedInput[] = [
  ...["id", "version", "created_at", "updated_at"].map((field) =>
    row(field, secret, `Validation failed: ${field} is read-only`),
  ),
  row("nmae", secret, "Validation failed: nmae is not allowed"),
  row("Email", null, "Validation failed: Email is not allowed"),
  row("email", longEmail(255), must("email"), "zzz"),
  row("email", null, /^Validation failed: email (must |is required$)/),
  ...Object.entries(wrong_values).flatMap(([field, values]) =>
    values.map((value) => row(field, value, must(field))),
  ),
];
const rejected_if_complete: RejectedInput[] = [
  row("email", undefined, "Validation failed: email is required"),
  row("metadata", null, must("metadata")),
  row("metadata", { k: null }, must("metadata")),
];
for (const method of ["POST", "PUT", "PATCH"]) {
  for (const { name, fields, error, hidden } of [
    ...rejected,
    ...(method === "PATCH" ? [] : rejected_if_complete),
  ]) {
    test(`${method} /users returns 400 and stores nothing when ${name}`, async () => {
      const user = await newUser(server, full);
      const before = await stored(server, "/users?limit=1", `/users/${user.id}`);
      const path = method === "POST" ? "/users" : `/users/${user.id}`;
      const body = method === "PATCH" ? fields : { email: newEmail(), ...fields };
      expectError(await server.call(method, path, { body }), 400, error, hidden);
      expect(await stored(server, "/users?limit=1", `/users/${user.id}`)).toEqual(before);
    });
  }
}
