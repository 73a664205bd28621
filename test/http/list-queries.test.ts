import { expect, test } from "bun:test";
import { countOf, expectError, newEmail, newOrder, newUser } from "./make.ts";
import { rawRequest } from "./raw.ts";
import { startSharedServer } from "./server.ts";

const server = await startSharedServer();
const user = await newUser(server);
const order = await newOrder(server, user.id);

const largest = "9007199254740991"; // 2^53 − 1
const range = {
  limit: "Validation failed: limit must be an integer from 1 to 1000",
  offset: `Validation failed: offset must be an integer from 0 to ${largest}`,
};
for (const path of ["/users", "/orders"]) {
  test(`GET ${path} rejects after when it is not an id or comes with offset`, async () => {
    for (const after of ["-1", "x", "01", "1.5", "", "9007199254740992"]) {
      const response = await server.call("GET", `${path}?after=${after}`);
      const problem = `must be an integer from 0 to ${largest}`;
      expectError(response, 400, `Validation failed: after ${problem}`);
    }
    for (const query of ["after=1&offset=0", "offset=2&after=1"]) {
      const response = await server.call("GET", `${path}?${query}`);
      expectError(response, 400, "Validation failed: offset cannot be combined with after");
    }
  });

  test(`GET ${path} returns 400 and names the orders when sort is anything else`, async () => {
    for (const sort of ["", "ID", "+id", "%2Did%20", "--id", "name", "id,-id", "desc"]) {
      const response = await server.call("GET", `${path}?sort=${sort}`);
      expectError(response, 400, "Validation failed: sort must be one of id, -id");
    }
    const twice = await server.call("GET", `${path}?sort=id&sort=-id`);
    expectError(twice, 400, "Validation failed: sort is given more than once");
  });

  for (const [name, bad] of Object.entries({
    limit: ["0", "1001", "9007199254740992"],
    offset: ["9007199254740992", "9223372036854775808"],
  }).flatMap(([name, own]) =>
    [
      ...own,
      ...["-1", "+5", "%2B5", "%205", "5%20", "5.0", "0x10", "1e1", "", "abc", "1_0", "5n", "5;x"],
      ...["%2535", "%D9%A5", "5%00", "null", "1".repeat(30), "1,000", "5%0A"],
    ].map((value) => [name as keyof typeof range, value] as const),
  )) {
    test(`GET ${path} returns 400 and names the range when ${name} is "${bad}"`, async () => {
      const response = await server.call("GET", `${path}?${name}=${bad}`);
      expectError(response, 400, range[name]);
      const code = /^-?\d+$/.test(bad) ? "range" : "type";
      expect(response.json.meta.problems[0]).toMatchObject({ field: name, code });
    });
  }

  for (const [query, error] of [
    ["limit", range.limit],
    ["limit=5&limit=5", "Validation failed: limit is given more than once"],
    ["limit=5&offset=1&li%6Dit=6", "Validation failed: limit is given more than once"],
    ["offset=0&offset=", "Validation failed: offset is given more than once"],
    ["lmit=5", "Validation failed: lmit is not allowed"],
    ["Limit=5", "Validation failed: Limit is not allowed"],
    ["limit[]=5", /^Validation failed: limit(\[\]|%5B%5D) is not allowed$/],
    ["__proto__=1", "Validation failed: __proto__ is not allowed"],
    ["constructor=1", "Validation failed: constructor is not allowed"],
    ["access_token=hunter2", "Validation failed: access_token is not allowed"],
    ["=5", /^Validation failed: .* is not allowed$/],
    [`${"~/".repeat(99)}=5`, `Validation failed: ${"~/".repeat(50)}… is not allowed`],
    ["limit=5?limit=6", range.limit],
    ["__proto__=1&__proto__=2", "Validation failed: __proto__ is given more than once"],
    ["limit=%", /^Validation failed: /],
    ["limit=5%zz", /^Validation failed: /],
    ["%zz=5", /^Validation failed: /],
    ["limit=%ff", "Validation failed: limit must be percent-encoded UTF-8"],
    ["%ff=1", "Validation failed: query must be percent-encoded UTF-8"],
    path === "/users"
      ? ["user_id=1", "Validation failed: user_id is not allowed"]
      : ["email=a@b.example", "Validation failed: email is not allowed"],
  ] as const) {
    test(`GET ${path} returns 400 when the query is ${query}`, async () => {
      expectError(await server.call("GET", `${path}?${query}`), 400, error, "hunter2");
    });
  }

  test(`GET ${path} reads no further than 20 unknown parameters when it has more`, async () => {
    const unknown = Array.from({ length: 20 }, (_, at) => `a${at}=1`);
    const query = ["limit=5", ...unknown].join("&");
    // The last one would be the first problem.
    for (const rest of ["", "&limit=5", "&%ff", "&a20=1"]) {
      const response = await server.call("GET", `${path}?${query}${rest}`);
      expectError(response, 400, "Validation failed: a0 is not allowed");
      const { problems } = response.json.meta as { problems: { field: string }[] };
      expect(problems.map(({ field }) => `${field}=1`)).toEqual(unknown);
    }
    const response = await server.call(
      "GET",
      `${path}?${unknown.slice(1).join("&")}&limit=5&limit=5`,
    );
    expectError(response, 400, "Validation failed: limit is given more than once");
  });

  test(`GET ${path} returns 404 when its path contains something like a query`, async () => {
    for (const hidden of ["&limit=9?limit=5", "&limit=9", ";limit=9", "%3Flimit=9", "/"]) {
      expectError(await server.call("GET", `${path}${hidden}`), 404, /^not found/);
    }
    expect((await server.call("GET", `${path}?limit=5`)).json.meta.limit).toBe(5);
  });
}

test("GET of a list returns 400 when the query has bytes that are not UTF-8", async () => {
  for (const [target, field] of [
    ["users?email=a%@b.example", "email"],
    ["users?limit=5%", "limit"],
    ["users?after=1%", "after"],
    ["users?limit%=5", "limit"],
    ["orders?status=paid%", "status"],
    ["orders?user_id=1%", "user_id"],
  ]) {
    for (const bytes of [[0xff], [0xe4], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xe2, 0x82]]) {
      const encoded = bytes.map((byte) => `%${byte.toString(16)}`).join("");
      const error = new RegExp(`^Validation failed: (?:${field}|query)`);
      const response = await server.call("GET", `/${target?.replace("%", encoded)}`);
      expectError(response, 400, error);
      const [before = "", after = ""] = rawRequest("GET", `/api/v1/${target}`, {
        token: server.readToken,
      }).split("%");
      const raw = await server.raw(
        Buffer.concat([Buffer.from(before), Buffer.from(bytes), Buffer.from(after)]),
      );
      expect(raw).toStartWith("HTTP/1.1 400 ");
      expect(raw).toMatch(new RegExp(`"Validation failed: ${field}`));
    }
  }
});

test("a request for one record returns 400 when it has a query parameter", async () => {
  for (const [method, path, body] of [
    ["GET", `/users/${user.id}`, undefined],
    ["GET", `/orders/${order.id}`, undefined],
    ["POST", "/users", { email: newEmail() }],
    ["PATCH", `/orders/${order.id}`, {}],
    ["DELETE", `/users/${user.id}`, undefined],
  ] as const) {
    const response = await server.call(method, `${path}?limit=5`, { body });
    expectError(response, 400, "Validation failed: limit is not allowed");
  }
  expect(await countOf(server, "/users")).toBe(1);
});

for (const query of [
  ...["", "abc", "1.0", "0x1", "1e0", "%201", "+1", "1.5", "9007199254740992"].map(
    (id) => `user_id=${id}`,
  ),
  ...["", "Paid", "PAID", "unknown", "paid,pending", "paid%00", "__proto__"].map(
    (status) => `status=${status}`,
  ),
]) {
  test(`GET /orders returns 400 when the filter is ${query}`, async () => {
    const [name = ""] = query.split("=");
    const response = await server.call("GET", `/orders?${query}`);
    expectError(response, 400, new RegExp(`^Validation failed: ${name} must `));
    const twice = await server.call("GET", `/orders?${query}&${query}`);
    expectError(twice, 400, `Validation failed: ${name} is given more than once`);
  });
}
