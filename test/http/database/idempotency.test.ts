import { afterAll, describe, expect, test } from "bun:test";
import { newToken } from "../../../src/token.ts";
import { newEmail, newOrder, newUser } from "../make.ts";
import { sendRaw } from "../raw.ts";
import { startServer, type TestResponse } from "../server.ts";

const second_token = newToken();
const server = await startServer({ API_TOKEN: second_token });
afterAll(() => server[Symbol.asyncDispose]());
const user = await newUser(server);

const newKey = () => `key-${crypto.randomUUID()}`;
const userBody = () => ({ email: newEmail(), name: "Ada", metadata: { b: "2", a: "1" } });
const orderBody = () => ({
  user_id: user.id,
  currency: "EUR",
  items: [{ sku: "a", quantity: 1, unit_price: 250 }],
  metadata: { reference: crypto.randomUUID() },
});

interface Post {
  raw?: string;
  token?: string;
}

/** Sends a POST with a key, and with `raw` instead of `body` if given. */
function post(path: string, key: string, body: unknown, { raw, token }: Post = {}) {
  const headers = { "idempotency-key": key, "content-type": "application/json" };
  const sent = raw === undefined ? { body } : { raw };
  return server.call("POST", path, { ...sent, headers, ...(token && { token }) });
}

function expectReplay(response: TestResponse, first: TestResponse): void {
  expect(response.status, response.text).toBe(201);
  expect(response.text).toBe(first.text);
  for (const name of ["location", "etag", "content-type", "cache-control"])
    expect(response.headers.get(name)).toBe(first.headers.get(name));
  expect(response.headers.get("idempotent-replayed")).toBe("true");
  expect(response.headers.get("x-request-id")).not.toBe(first.headers.get("x-request-id"));
}

function expectFresh(response: TestResponse): void {
  expect(response.status, response.text).toBe(201);
  expect(response.headers.has("idempotent-replayed")).toBe(false);
}

function expectReused(response: TestResponse): void {
  expect(response.status).toBe(422);
  expect(response.json).toEqual({
    data: null,
    error: "the idempotency key was used for another request",
    meta: { code: "idempotency_key_reused" },
  });
  expect(response.headers.has("idempotent-replayed")).toBe(false);
}

async function count(path: string): Promise<number> {
  return (await server.call("GET", `${path}?limit=1`)).json.meta.total;
}

describe.each([
  ["/users", userBody],
  ["/orders", orderBody],
] as [string, () => Record<string, unknown>][])("Idempotency-Key on POST %s", (path, newBody) => {
  test("a retry replays the first response byte for byte when the key is the same", async () => {
    const [key, body] = [newKey(), newBody()];
    const first = await post(path, key, body);
    expectFresh(first);
    const before = await count(path);
    for (let round = 0; round < 3; round += 1) expectReplay(await post(path, key, body), first);
    expect(await count(path)).toBe(before);
  });

  test("a retry replays the first response when the record has changed since", async () => {
    const [key, body] = [newKey(), newBody()];
    const first = await post(path, key, body);
    const one = `${path}/${first.json.data.id}`;
    const changed = await server.call("PATCH", one, { body: { metadata: { later: "yes" } } });
    expect(changed.json.data.version).toBe(2);
    expectReplay(await post(path, key, body), first);
    expect((await server.call("GET", one)).text).toBe(changed.text);
  });

  test("a retry replays the first response when the server was restarted since", async () => {
    const [key, body] = [newKey(), newBody()];
    const first = await post(path, key, body);
    await server.restart();
    const before = await count(path);
    expectReplay(await post(path, key, body), first);
    expect(await count(path)).toBe(before);
    expectReused(await post(path, key, newBody()));
  });

  test("a retry replays the first response when the JSON is equal but formatted differently", async () => {
    const [key, body] = [newKey(), newBody()];
    const first = await post(path, key, body);
    const turned = Object.fromEntries(Object.entries(body).toReversed());
    const metadata = Object.entries(body["metadata"] as object).toReversed();
    const spellings = [
      JSON.stringify(turned),
      JSON.stringify({ ...turned, metadata: Object.fromEntries(metadata) }),
      ` ${JSON.stringify(body, null, "\t")}\r\n`,
      JSON.stringify(body).replace("metadata", "\\u006detadata"),
      JSON.stringify(body).replace('"quantity":1', '"quantity":1.0').replace(":250", ":25e1"),
    ];
    for (const raw of spellings) expectReplay(await post(path, key, body, { raw }), first);
  });

  test("a retry returns 422 and creates nothing when the body differs", async () => {
    const [key, body] = [newKey(), newBody()];
    expectFresh(await post(path, key, body));
    const before = await count(path);
    const { metadata: _, ...less } = body;
    const more = { ...(body["metadata"] as object), c: "3" };
    for (const other of [newBody(), less, { ...body, metadata: {} }, { ...body, metadata: more }])
      expectReused(await post(path, key, other));
    expect(await count(path)).toBe(before);
  });

  test("a key is independent when another token sends it", async () => {
    const [key, body, other] = [newKey(), newBody(), newBody()];
    const first = await post(path, key, body);
    const second = await post(path, key, other, { token: second_token });
    expectFresh(second);
    expect(second.json.data.id).not.toBe(first.json.data.id);
    expectReplay(await post(path, key, body), first);
    expectReplay(await post(path, key, other, { token: second_token }), second);
  });

  test("an error is not stored when the first request was invalid", async () => {
    const [key, body] = [newKey(), newBody()];
    const before = await count(path);
    expect((await post(path, key, { ...body, nmae: 1 })).status).toBe(400);
    expect((await post(path, key, body, { raw: "{" })).status).toBe(400);
    const first = await post(path, key, body);
    expectFresh(first);
    expectReplay(await post(path, key, body), first);
    expect(await count(path)).toBe(before + 1);
  });

  test("a key creates one record when 20 concurrent requests have it", async () => {
    const [key, body] = [newKey(), newBody()];
    const before = await count(path);
    const all = await Promise.all(Array.from({ length: 20 }, () => post(path, key, body)));
    expect(new Set(all.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    const fresh = all.filter(({ headers }) => !headers.has("idempotent-replayed"));
    expect(fresh.length).toBe(1);
    expectFresh(fresh[0] as TestResponse);
    expect(await count(path)).toBe(before + 1);
  });

  test("a key creates one record and returns 422 when 20 concurrent requests differ", async () => {
    const key = newKey();
    const before = await count(path);
    const all = await Promise.all(Array.from({ length: 20 }, () => post(path, key, newBody())));
    const statuses = all.map(({ status }) => status).sort();
    expect(statuses).toEqual([201, ...Array.from({ length: 19 }, () => 422)]);
    expect(await count(path)).toBe(before + 1);
  });

  test.each(["k", "!~", "k".repeat(255), '"quoted"', "a,b"])(
    "a key is accepted when it is %s",
    async (key) => {
      const body = newBody();
      const token = path === "/users" ? server.write_token : second_token;
      const first = await post(path, key, body, { token });
      expectFresh(first);
      expectReplay(await post(path, key, body, { token }), first);
    },
  );

  test("a key returns 400 and creates nothing when it is sent twice", async () => {
    const before = await count(path);
    const json = JSON.stringify(newBody());
    const [a, b] = [newKey(), newKey()];
    for (const keys of [
      [a, b],
      [a, a],
    ]) {
      const headers = keys.map((key) => `Idempotency-Key: ${key}`);
      const request = { token: server.write_token, headers, json };
      expect((await sendRaw(server, "POST", `/api/v1${path}`, request)).status).toBe(400);
    }
    expect(await count(path)).toBe(before);
  });
});

test("a retry replays the creation when the user was deleted since", async () => {
  const [key, body] = [newKey(), userBody()];
  const first = await post("/users", key, body);
  const one = `/users/${first.json.data.id}`;
  expect((await server.call("DELETE", one)).status).toBe(200);
  expectReplay(await post("/users", key, body), first);
  expect((await server.call("GET", one)).status).toBe(404);
  const again = await post("/users", newKey(), body);
  expectFresh(again);
  expect(again.json.data.id).toBeGreaterThan(first.json.data.id);
});

test("a 409 is not stored when the email was taken at first and is free now", async () => {
  const [key, body, taken] = [newKey(), userBody(), await newUser(server)];
  const wanted = { ...body, email: taken.email.toUpperCase() };
  const rejected = await post("/users", key, wanted);
  expect([rejected.status, rejected.json.error]).toEqual([409, "email is already taken"]);
  expect((await server.call("DELETE", `/users/${taken.id}`)).status).toBe(200);
  const first = await post("/users", key, wanted);
  expectFresh(first);
  expectReplay(await post("/users", key, wanted), first);
});

test("a key returns 422 when it was used on another path, and has no effect on other methods", async () => {
  const [key, body] = [newKey(), userBody()];
  const { id } = (await post("/users", key, body)).json.data;
  expectReused(await post("/orders", key, orderBody()));
  const headers = { "idempotency-key": key };
  for (const name of ["B", "C"]) {
    const response = await server.call("PATCH", `/users/${id}`, { body: { name }, headers });
    expect([response.status, response.json.data.name]).toEqual([200, name]);
    expect(response.headers.has("idempotent-replayed")).toBe(false);
  }
  expect((await server.call("GET", `/users/${id}`, { headers })).json.data.version).toBe(3);
});

/** Neither `*` nor a list of entity tags. Some contain `"2"`, the stored version. */
const MALFORMED = `2|"2|2"|"2" "1"|"2"; x|"2 "|'2'|w/"2"|W/ "2"|W/2|**|*, "2"|"2", *|,`.split("|");
const problem = "must be * or a list of entity tags";

describe("If-Match", () => {
  const edits = {
    "PATCH a user": () => ({ name: "New" }),
    "PUT a user": () => ({ email: newEmail(), name: "New" }),
    "DELETE a user": () => undefined,
    "PATCH an order": () => ({ status: "paid", metadata: { a: "b" } }),
  };
  /** Creates a record at version 2. @returns functions that send the edit, and read the record */
  async function make(edit: keyof typeof edits) {
    const [method = "", , noun] = edit.split(" ");
    const record = noun === "user" ? await newUser(server) : await newOrder(server, user.id);
    const path = `/${noun}s/${record.id}`;
    await server.call("PATCH", path, { body: { metadata: { at: "2" } } });
    const send = (etags: string) => {
      const body = edits[edit]();
      return server.call(method, path, { ...(body && { body }), headers: { "if-match": etags } });
    };
    return { send, read: () => server.call("GET", path) };
  }
  const names = Object.keys(edits) as (keyof typeof edits)[];

  test.each(names)("%s succeeds when If-Match has the current version", async (edit) => {
    for (const etags of [
      '"2"',
      "*",
      '"1", "2"',
      '"2","7"',
      '"x",W/"2" , "2"',
      ', "2",,"4" ,',
      '"a,b", "2"',
    ]) {
      const { send, read } = await make(edit);
      const response = await send(etags);
      expect([etags, response.status]).toEqual([etags, 200]);
      const after = await read();
      if (edit.startsWith("DELETE")) expect(after.status).toBe(404);
      else expect([after.text, after.headers.get("etag")]).toEqual([response.text, '"3"']);
    }
  });

  test.each(names)("%s returns 412 and changes nothing when If-Match is stale", async (edit) => {
    const { send, read } = await make(edit);
    const before = await read();
    for (const etags of [
      '"1"',
      '"3"',
      '"1", "3"',
      'W/"2"',
      '""',
      '"02"',
      '"+2"',
      '"2.0"',
      '"abc"',
      '"*"',
      '"\xe9"',
    ]) {
      const response = await send(etags);
      expect([etags, response.status]).toEqual([etags, 412]);
      expect(response.json).toEqual({
        data: null,
        error: expect.any(String),
        meta: { code: "version_mismatch" },
      });
      expect(response.headers.get("content-type")).toBe("application/json");
    }
    expect((await read()).text).toBe(before.text);
  });

  test.each(names)(
    "%s returns 400 and changes nothing when If-Match is malformed",
    async (edit) => {
      const { send, read } = await make(edit);
      const before = await read();
      for (const etags of MALFORMED) {
        const response = await send(etags);
        expect([etags, response.status]).toEqual([etags, 400]);
        expect(response.json.error).toBe(`Validation failed: If-Match ${problem}`);
      }
      expect((await read()).text).toBe(before.text);
    },
  );

  test.each(["/users", "/orders"])(
    "PATCH %s succeeds once when four concurrent edits share an If-Match",
    async (path) => {
      const { id } = path === "/users" ? user : await newOrder(server, user.id);
      for (let round = 0; round < 20; round += 1) {
        const etag = (await server.call("GET", `${path}/${id}`)).headers.get("etag") ?? "";
        const responses = await Promise.all(
          ["a", "b", "c", "d"].map((who) =>
            server.call("PATCH", `${path}/${id}`, {
              body: { metadata: { who, round: String(round) } },
              headers: { "if-match": etag },
            }),
          ),
        );
        expect(responses.map(({ status }) => status).sort()).toEqual([200, 412, 412, 412]);
        const won = responses.find(({ status }) => status === 200);
        expect((await server.call("GET", `${path}/${id}`)).text).toBe(won?.text as string);
      }
    },
  );
});

describe.each(["users", "orders"])("If-None-Match on %s", (noun) => {
  async function make() {
    const record = noun === "users" ? await newUser(server) : await newOrder(server, user.id);
    const path = `/${noun}/${record.id}`;
    const ask = (method: string, etags: string) =>
      server.call(method, path, { headers: { "if-none-match": etags } });
    return { path, ask };
  }

  test("GET returns 304 with the ETag when If-None-Match has the current version", async () => {
    const { ask } = await make();
    for (const method of ["GET", "HEAD"]) {
      for (const etags of ['"1"', 'W/"1"', "*", '"7", "1"', '"7",W/"1"']) {
        const response = await ask(method, etags);
        expect([etags, response.status, response.text]).toEqual([etags, 304, ""]);
        expect(response.headers.get("etag")).toBe('"1"');
        expect(response.headers.get("cache-control")).toBe("private, no-cache");
        expect(response.headers.get("x-request-id")).not.toBeNull();
        expect(response.headers.has("content-type")).toBe(false);
      }
    }
  });

  test("GET returns the record when If-None-Match has another version", async () => {
    const { ask, path } = await make();
    for (const etags of ['"0"', '"2"', '"2", "3"', '""', '"*"']) {
      const response = await ask("GET", etags);
      expect([etags, response.status, response.json?.data.version]).toEqual([etags, 200, 1]);
    }
    await server.call("PATCH", path, { body: { metadata: { a: "b" } } });
    expect((await ask("GET", '"1"')).json.data.version).toBe(2);
    expect((await ask("GET", '"2"')).status).toBe(304);
  });

  test("If-None-Match returns 400 when it is malformed, and 404 when the record does not exist", async () => {
    const { ask } = await make();
    for (const etags of MALFORMED) {
      const response = await ask("GET", etags);
      expect([etags, response.status]).toEqual([etags, 400]);
      expect(response.json.error).toBe(`Validation failed: If-None-Match ${problem}`);
    }
    const headers = { "if-none-match": "*" };
    expect((await server.call("GET", `/${noun}/999999`, { headers })).status).toBe(404);
  });
});

/** The statuses of a GET of a record at version 2, and of a change of it, by what it is sent with. */
const preconditions: [
  of_get: number,
  of_change: number,
  if_match: string | null,
  if_none_match: string | null,
][] = [
  [200, 200, '"2"', null],
  [200, 200, "*", null],
  [412, 412, '"1"', null],
  [412, 412, 'W/"2"', null],
  [400, 400, "2", null],
  [200, 200, null, '"1"'],
  [304, 412, null, '"2"'],
  [304, 412, null, 'W/"2"'],
  [304, 412, null, '"1", "2"'],
  [304, 412, null, "*"],
  [400, 400, null, "2"],
  // If-Match comes first (RFC 9110 §13.2.2).
  [412, 412, '"1"', '"2"'],
  [412, 412, '"1"', '"1"'],
  [304, 412, '"2"', '"2"'],
  [200, 200, '"2"', '"1"'],
  [304, 412, "*", "*"],
];

describe.each([
  ["users", ["PATCH", "PUT", "DELETE"]],
  ["orders", ["PATCH"]],
] as const)("preconditions on %s", (noun, methods) => {
  const make = async () => {
    const record = noun === "users" ? await newUser(server) : await newOrder(server, user.id);
    const path = `/${noun}/${record.id}`;
    await server.call("PATCH", path, { body: { metadata: { at: "2" } } });
    return path;
  };
  const bodies = {
    GET: () => undefined,
    HEAD: () => undefined,
    PATCH: () => ({ metadata: { at: "3" } }),
    PUT: () => ({ email: newEmail() }),
    DELETE: () => undefined,
  };
  const send = (method: keyof typeof bodies, path: string, headers: Record<string, string>) => {
    const body = bodies[method]();
    return server.call(method, path, { ...(body && { body }), headers });
  };

  test.each(preconditions)(
    "GET returns %i and a change %i when If-Match is %j, If-None-Match %j and the version 2",
    async (of_get, of_change, if_match, if_none_match) => {
      const headers: Record<string, string> = {};
      if (if_match !== null) headers["if-match"] = if_match;
      if (if_none_match !== null) headers["if-none-match"] = if_none_match;
      const read = await make();
      for (const [method, path] of [
        ["GET", read],
        ["GET", `${read}?`],
        ["HEAD", read],
      ] as const) {
        const { status } = await send(method, path, headers);
        expect([method, status]).toEqual([method, of_get]);
      }
      for (const method of methods) {
        const path = await make();
        const before = await server.call("GET", path);
        const { status } = await send(method, path, headers);
        expect([method, status]).toEqual([method, of_change]);
        const is_same = (await server.call("GET", path)).text === before.text;
        expect([method, is_same]).toEqual([method, of_change !== 200]);
      }
    },
  );

  test("every method returns 404 when the record does not exist and there are preconditions", async () => {
    for (const headers of [{ "if-match": "*" }, { "if-match": '"1"' }, { "if-none-match": "*" }]) {
      for (const method of ["GET", "HEAD", ...methods] as const) {
        const { status } = await send(method, `/${noun}/999999`, headers);
        expect([method, status]).toEqual([method, 404]);
      }
    }
  });

  test("a 412 names the precondition that failed", async () => {
    const path = await make();
    const errors = [
      [{ "if-match": '"1"' }, "the record has changed: it is at version 2"],
      [
        { "if-match": 'W/"2"' },
        "If-Match never matches a weak entity tag: send the tag without W/",
      ],
      [{ "if-none-match": "*" }, "If-None-Match matches the record: it is at version 2"],
    ] as const;
    for (const [headers, error] of errors) {
      const { status, json } = await server.call("PATCH", path, { body: {}, headers });
      expect([status, json.error]).toEqual([412, error]);
    }
  });
});
