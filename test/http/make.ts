// What the HTTP tests share: records of their own, bodies byte for byte, and the shape of a refusal.
import { expect } from "bun:test";
import type { TestResponse, TestServer } from "./server.ts";

export const user_keys = [
  "created_at",
  "email",
  "id",
  "metadata",
  "name",
  "updated_at",
  "version",
] as const;

export const order_keys = [
  "created_at",
  "currency",
  "id",
  "items",
  "metadata",
  "status",
  "total",
  "updated_at",
  "user_id",
  "version",
] as const;

/** RFC 3339, UTC, milliseconds, `Z`. */
export const time_format = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** What belongs to us and never to a client: no refusal may hold one of these. */
const internals = [
  "SQLITE",
  "sqlite",
  "postgres",
  "Postgres",
  "at /",
  "TypeBox",
  "node_modules",
  "bunfs",
  ".ts:",
  "Error:",
];

export type Fields = Record<string, unknown>;

/** One row of a refusal table; `hidden` must not appear in the answer. */
export interface Refused {
  name: string;
  fields: Fields;
  error: string | RegExp;
  hidden?: string;
}

/** An address no other test has. */
export function newEmail(): string {
  return `user-${crypto.randomUUID()}@example.com`;
}

/** Creates a user with an address of its own; returns the record. */
export async function newUser(
  server: Pick<TestServer, "call">,
  fields: Fields = {},
): Promise<TestResponse["json"]> {
  const answer = await server.call("POST", "/users", { body: { email: newEmail(), ...fields } });
  return created(answer);
}

/** Creates an order of one item, 100 minor units of EUR; returns the record. */
export async function newOrder(
  server: TestServer,
  user_id: number,
  fields: Fields = {},
): Promise<TestResponse["json"]> {
  const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];
  const body = { user_id, currency: "EUR", items, ...fields };
  return created(await server.call("POST", "/orders", { body }));
}

function created(answer: TestResponse): TestResponse["json"] {
  if (answer.status !== 201) throw new Error(`Cannot create: ${answer.status} ${answer.text}`);
  return answer.json.data;
}

/** Sends a body byte for byte. */
export function send(
  server: TestServer,
  method: string,
  path: string,
  raw: string | Uint8Array<ArrayBuffer>,
  type = "application/json",
): Promise<TestResponse> {
  return server.call(method, path, { raw, headers: { "content-type": type } });
}

/** The responses to GET of these paths, to compare before and after an error. */
export async function stored(server: TestServer, ...paths: string[]): Promise<string[]> {
  const answers = await Promise.all(paths.map((path) => server.call("GET", path)));
  return answers.map((answer) => `${answer.status} ${answer.text}`);
}

/** Expects a JSON error. The first problem of a validation error must be the one in the message. */
export function expectRefused(
  answer: TestResponse,
  status: number,
  error: string | RegExp,
  hidden?: string,
): void {
  expect(answer.status, answer.text.slice(0, 500)).toBe(status);
  expect(answer.headers.get("content-type")).toBe("application/json");
  expect(answer.headers.get("cache-control")).toBe("no-store");
  expect(answer.json.data).toBeNull();
  if (typeof error === "string") expect(answer.json.error).toBe(error);
  else expect(answer.json.error).toMatch(error);
  expect(Object.keys(answer.json).sort()).toEqual(["data", "error", "meta"]);
  if (answer.json.error.startsWith("Validation failed: ")) {
    const { code, problems } = answer.json.meta;
    expect(code).toBe("validation_failed");
    expect(answer.json.error).toBe(
      `Validation failed: ${problems[0].field} ${problems[0].problem}`,
    );
    expect(problems.length).toBeLessThanOrEqual(20);
    for (const problem of problems)
      expect(Object.keys(problem).sort()).toEqual(["field", "problem"]);
  } else {
    // `call` has compared the code with those of the operation.
    expect(Object.keys(answer.json.meta)).toEqual(["code"]);
  }
  for (const ours of internals) expect(answer.text).not.toContain(ours);
  if (hidden !== undefined) expect(answer.text).not.toContain(hidden);
}
