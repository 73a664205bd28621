// Shared by the HTTP tests: creating records, sending raw bodies, and checking errors.
import { expect } from "bun:test";
import type { TestResponse, TestServer } from "./server.ts";

/** RFC 3339, UTC, milliseconds, `Z`. */
export const timeFormat = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** Details of the implementation, which no error may contain. */
const internals = /sqlite|postgres|at \/|typebox|node_modules|bunfs|\.ts:|Error:/i;

export type Fields = Record<string, unknown>;

export function newEmail(): string {
  return `user-${crypto.randomUUID()}@example.com`;
}

/** @returns metadata with this many keys: `key_0`, `key_1` … */
export function metadataOf(keys: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: keys }, (_, at) => [`key_${at}`, "v"]));
}

export async function newUser(
  server: Pick<TestServer, "call">,
  fields: Fields = {},
): Promise<TestResponse["json"]> {
  const response = await server.call("POST", "/users", { body: { email: newEmail(), ...fields } });
  return created(response);
}

/** Creates an order of one item, 100 minor units of EUR. @returns the record */
export async function newOrder(
  server: TestServer,
  userId: number,
  fields: Fields = {},
): Promise<TestResponse["json"]> {
  const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];
  const body = { user_id: userId, currency: "EUR", items, ...fields };
  return created(await server.call("POST", "/orders", { body }));
}

/** @param path of the list @param userId of an order */
export const newRecord = (server: TestServer, path: string, userId: number, fields: Fields = {}) =>
  path === "/users" ? newUser(server, fields) : newOrder(server, userId, fields);

/**
 * @param user the literal of `user_id`
 * @param items the literals of `quantity` and `unit_price`, e.g. `2 × 250`
 * @returns the body of an order as text, so that its numbers are not converted to doubles
 */
export function orderText(user: string | number, ...items: readonly string[]): string {
  const texts = items.map((item) => {
    const [quantity, price] = item.split(" × ");
    return `{"sku":"S","quantity":${quantity},"unit_price":${price}}`;
  });
  return `{"user_id":${user},"currency":"EUR","items":[${texts.join()}]}`;
}

function created(response: TestResponse): TestResponse["json"] {
  if (response.status !== 201)
    throw new Error(`Cannot create: ${response.status} ${response.text}`);
  return response.json.data;
}

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
  const responses = await Promise.all(paths.map((path) => server.call("GET", path)));
  return responses.map((response) => `${response.status} ${response.text}`);
}

/** @returns the values of metrics by series, e.g. `up{a="b"}` */
export function metricsIn(text: string): Map<string, number> {
  const lines = text.matchAll(/^(\w.*) (\S+)$/gm);
  return new Map([...lines].map(([, series = "", value]) => [series, Number(value)]));
}

/** @returns the value of a metric without labels; `NaN` if it is missing */
export async function metricOf(server: TestServer, name: string): Promise<number> {
  const { text } = await server.call("GET", "/metrics");
  return metricsIn(text).get(name) ?? Number.NaN;
}

/** The targets of a `Link` header by relation, as paths under `/api/v1`. */
export function links(response: TestResponse): Record<string, string> {
  const header = response.headers.get("link") ?? "";
  const found = [...header.matchAll(/<\/api\/v1([^>]*)>; rel="(\w+)"(?:, |$)/g)];
  expect(found.map(([whole]) => whole).join("")).toBe(header); // It has nothing else.
  return Object.fromEntries(found.map(([, path, rel]) => [rel, path]));
}

/**
 * Expects a JSON error. The first problem of a validation error must be the one in the message. `call` has compared the
 * headers, the fields and the code with the document.
 */
export function expectError(
  response: TestResponse,
  status: number,
  error: string | RegExp,
  hidden?: string,
): void {
  expect(response.status, response.text.slice(0, 500)).toBe(status);
  expect(response.json.data).toBeNull();
  if (typeof error === "string") expect(response.json.error).toBe(error);
  else expect(response.json.error).toMatch(error);
  if (response.json.error.startsWith("Validation failed: ")) {
    const { code, problems } = response.json.meta;
    expect(code).toBe("validation_failed");
    expect(response.json.error).toBe(
      `Validation failed: ${problems[0].field} ${problems[0].problem}`,
    );
    expect(problems.length).toBeLessThanOrEqual(20);
    for (const one of problems) {
      const isRange = one.code === "range" || one.code === "length";
      const has = ["allowed", "min", "max"].map((name) => Object.hasOwn(one, name));
      expect([one, ...has]).toEqual([one, one.code === "not_allowed", isRange, isRange]);
    }
  } else {
    const { code, allowed } = response.json.meta;
    const isTold = code === "invalid_status_change" || code === "invalid_refund";
    expect(allowed !== undefined).toBe(isTold);
  }
  expect(response.text).not.toMatch(internals);
  if (hidden !== undefined) expect(response.text).not.toContain(hidden);
}

/** Expects an error of a route for one order, which are plain text. */
export function expectText(response: TestResponse, status: number, text: string): void {
  expect(response.status).toBe(status);
  expect(response.text).toBe(text);
  expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
}

/** Expects a 401 that reveals nothing else. */
export function expectUnauthorised(
  response: Pick<TestResponse, "status" | "headers" | "text">,
  challenges: readonly string[],
  method = "GET",
): void {
  expect(response.status).toBe(401);
  expect(response.text).toBe(method === "HEAD" ? "" : "unauthorised");
  expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
  expect(challenges).toContain(response.headers.get("www-authenticate") ?? "(none)");
  expect(response.headers.get("cache-control")).toBe("no-store");
  expect(response.headers.get("link")).toBe('</api/v1/docs>; rel="service-doc"');
  const names = [...response.headers.keys()].sort();
  const usual = ["cache-control", "content-type", "link", "www-authenticate", "x-request-id"];
  const carried = ["connection", "content-length", "date", "keep-alive", "vary"];
  expect(names.filter((name) => !carried.includes(name))).toEqual(usual);
}
