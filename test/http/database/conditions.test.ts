import { describe, expect, test } from "bun:test";
import { newToken } from "../../../src/domain/token.ts";
import { expectError, newEmail, newOrder, newRecord, newUser, stored } from "../make.ts";
import { sendRaw } from "../raw.ts";
import { type CallOptions, startSharedServer, type TestResponse } from "../server.ts";

const secondToken = newToken();
const server = await startSharedServer({ API_TOKEN: secondToken });
const user = await newUser(server);
await newOrder(server, user.id);

/** A list of entity tags. The last one is that of the stored version. */
const tagList = (length: number) => `${'"1",'.repeat(length - 1)}"2"`;
/** Neither `*` nor a list of at most 100 entity tags. Some contain `"2"`, the stored version. */
const malformed = [...`2|"2|"2" "1"|'2'|w/"2"|W/2|**|*, "2"|,`.split("|"), tagList(101)];

const current = ['"2"', "*", '"x",W/"2" , "2"', ', "2",,"4" ,', '"a,b", "2"', tagList(100)];
const other = ['"1"', '"1", "3"', 'W/"2"', '""', '"02"', '"+2"', '"2.0"', '"*"', '"\xe9"'];
const both = ['"2"', "*"];
const none = [null];
type Tags = readonly (string | null)[];
/** Values of the headers, and the statuses of a GET of a record at version 2, and of a change of it. */
const preconditions: [
  when: string,
  ifMatch: Tags,
  ifNoneMatch: Tags,
  get: number,
  change: number,
][] = [
  ["If-Match has the version", current, none, 200, 200],
  ["If-Match has another version", other, none, 412, 412],
  ["If-Match is malformed", malformed, none, 400, 400],
  ["If-None-Match has another", none, ['"0"', '"1", "3"', '"*"'], 200, 200],
  ["If-None-Match has it", none, ['"7",W/"2"', ...both], 304, 412],
  ["If-None-Match is malformed", none, malformed, 400, 400],
  // If-Match comes first (RFC 9110 §13.2.2).
  ["only If-Match fails", ['"1"'], ['"1"'], 412, 412],
  ["both fail", ['"1"'], ['"2"'], 412, 412],
  ["only If-None-Match fails", both, both, 304, 412],
  ["neither fails", ['"2"'], ['"1"'], 200, 200],
];

type Headers = Record<string, string>;

function headersOf(ifMatch: Tags, ifNoneMatch: Tags): Headers[] {
  return ifMatch.flatMap((one) =>
    ifNoneMatch.map((other) => ({
      ...(one !== null && { "if-match": one }),
      ...(other !== null && { "if-none-match": other }),
    })),
  );
}

/** Checks the status, and what each response with this status has. */
function expectStatus(response: TestResponse, status: number, headers: Headers): void {
  expect([headers, response.status]).toEqual([headers, status]);
  if (status === 304) expect([response.text, response.headers.get("etag")]).toEqual(["", '"2"']);
  if (status === 400) {
    const name = "if-match" in headers ? "If-Match" : "If-None-Match";
    const rule = 'must be * or a list of at most 100 entity tags such as "1", with the quotes';
    expectError(response, 400, `Validation failed: ${name} ${rule}`);
  }
}

describe.each([
  ["users", ["PATCH", "PUT", "DELETE"]],
  ["orders", ["PATCH"]],
] as const)("preconditions on %s", (noun, methods) => {
  const make = async () => {
    const { id } = await newRecord(server, `/${noun}`, user.id);
    const path = `/${noun}/${id}`;
    await server.call("PATCH", path, { body: { metadata: { at: "2" } } });
    return path;
  };
  const send = (method: string, path: string, headers: Headers) => {
    const body = method === "PUT" ? { email: newEmail() } : { metadata: { at: "3" } };
    return server.call(method, path, { ...(method.startsWith("P") && { body }), headers });
  };

  test.each(preconditions)(
    "GET and a change return what RFC 9110 says when %s",
    async (_when, ifMatch, ifNoneMatch, get, change) => {
      for (const method of ["GET", ...methods] as const) {
        const status = method === "GET" ? get : change;
        let path = await make();
        const before = await stored(server, path);
        for (const headers of headersOf(ifMatch, ifNoneMatch)) {
          const response = await send(method, path, headers);
          expectStatus(response, status, headers);
          if (method === "GET" || status !== 200) continue;
          const after = await server.call("GET", path);
          if (method === "DELETE") expect(after.status).toBe(404);
          else expect([after.text, after.headers.get("etag")]).toEqual([response.text, '"3"']);
          path = await make();
        }
        if (status !== 200) expect(await stored(server, path)).toEqual(before);
      }
    },
  );

  test("a 412 names the precondition that failed", async () => {
    const path = await make();
    for (const [headers, error] of [
      [{ "if-match": '"1"' }, "the record has changed: it is at version 2"],
      [
        { "if-match": 'W/"2"' },
        "If-Match never matches a weak entity tag: send the tag without W/",
      ],
      [{ "if-none-match": "*" }, "If-None-Match matches the record: it is at version 2"],
    ] as const) {
      const { status, json } = await server.call("PATCH", path, { body: {}, headers });
      expect([status, json.error]).toEqual([412, error]);
    }
  });
});

const userBody = () => ({ email: newEmail(), name: "Ada", metadata: { b: "2", a: "1" } });
const items = [{ sku: "a", quantity: 1, unit_price: 250 }];
const orderBody = () => ({ user_id: user.id, currency: "EUR", items, metadata: { a: "1" } });

function expectReplay(response: TestResponse, first: TestResponse): void {
  expect([response.status, response.text]).toEqual([first.status, first.text]);
  for (const name of ["location", "etag", "content-type", "cache-control"])
    expect(response.headers.get(name)).toBe(first.headers.get(name));
  expect(response.headers.get("idempotent-replayed")).toBe("true");
  expect(response.headers.get("x-request-id")).not.toBe(first.headers.get("x-request-id"));
}

/** Writes of a record at version 1, or of a new one, and the status of each with the key of another token afterwards. */
const writes: [method: string, path: string, again: number, newBody?: () => object][] = [
  ["POST", "/users", 409, userBody],
  ["POST", "/orders", 201, orderBody],
  ["PATCH", "/users", 412, () => ({ email: newEmail(), name: "Anna" })],
  ["PUT", "/users", 412, () => ({ email: newEmail(), metadata: { a: "1" } })],
  ["DELETE", "/users", 404],
  ["PATCH", "/orders", 412, () => ({ status: "paid", refunded: 50 })],
  // It changes nothing.
  ["PATCH", "/orders", 412, () => ({ status: "pending", metadata: {} })],
];

// The model of the contract has concurrent writes, and keys that were used for other requests.
test.each(writes)(
  "a retry of %s %s replays the first response byte for byte, before its preconditions, and changes nothing",
  async (method, path, again, newBody) => {
    const make = () => newRecord(server, path, user.id);
    const [{ id }, key, body] = [await make(), crypto.randomUUID(), newBody?.()];
    const typed = { "idempotency-key": key, "content-type": "application/json" };
    /** Sends the same write, or one of another record, or by another token. */
    function write({ at = id, ifMatch = 1, ...options }: CallOptions & Record<string, any> = {}) {
      const headers = { ...typed, ...(method !== "POST" && { "if-match": `"${ifMatch}"` }) };
      const target = method === "POST" ? path : `${path}/${at}`;
      return server.call(method, target, { body, headers, ...options });
    }
    const first = await write();
    expect([200, 201], first.text).toContain(first.status);
    expect(first.headers.has("idempotent-replayed")).toBe(false);
    const one = `${path}/${first.json.data.id}`;
    if (method !== "DELETE") {
      const changed = await server.call("PATCH", one, { body: { metadata: { later: "yes" } } });
      expect(changed.json.data.version).toBe(first.json.data.version + 1);
    }
    const state = () => stored(server, one, `${path}?limit=1`, "/changes?limit=1");
    const before = await state();
    expectReplay(await write(), first);
    expectReplay(await write({ ifMatch: 9 }), first);
    if (body !== undefined) {
      // More spellings are in idempotency.test.ts.
      const turned = Object.fromEntries(Object.entries(body).toReversed());
      const raw = JSON.stringify(turned, null, "\t").replace("metadata", "\\u006detadata");
      expectReplay(await write({ body: undefined, raw }), first);
    }
    expect(await state()).toEqual(before);
    expect((await write({ token: secondToken })).status).toBe(again);
    // The write of another record is another request.
    if (method === "POST") return;
    const ofOther = await write({ at: (await make()).id });
    expectError(ofOther, 422, "the idempotency key was used for another request");
  },
);

test("a write returns 400 and changes nothing when its key is sent twice", async () => {
  const before = await stored(server, "/users?limit=1");
  for (const keys of ["a b", "a a"]) {
    const headers = keys.split(" ").map((key) => `Idempotency-Key: ${key}`);
    const request = { token: server.writeToken, headers, json: JSON.stringify(userBody()) };
    expect((await sendRaw(server, "POST", "/api/v1/users", request)).status).toBe(400);
  }
  expect(await stored(server, "/users?limit=1")).toEqual(before);
});
