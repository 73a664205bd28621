import { expect, test } from "bun:test";
import { expectError, newEmail, newOrder, newUser } from "./make.ts";
import { rawRequest } from "./raw.ts";
import { sendRequest, startSharedServer } from "./server.ts";

const server = await startSharedServer();
const user = await newUser(server);
const lone = await newUser(server);
const order = await newOrder(server, user.id);

const largest = "9007199254740991"; // 2^53 − 1
/** Texts that are not integers in base 10, without a sign, zeros or white space before them. */
const noIntegers = [
  ...["+5", "%2B5", "%205", "5%20", "5.0", "0x10", "1e1", "", "abc", "1_0", "5n", "5;x", "05"],
  ...["%2535", "%D9%A5", "5%00", "null", "1,000", "5%0A"],
];
const outside: [path: string, name: string, range: string, ...values: string[]][] = [
  ["/users", "limit", "1 to 1000", "0", "-1", "1001", "9007199254740992", "1".repeat(30)],
  ["/users", "offset", `0 to ${largest}`, "-1", "9007199254740992", "9223372036854775808"],
  ["/users", "after", `0 to ${largest}`, "-1", "9007199254740992"],
  ["/orders", "limit", "1 to 1000", "0", "1001"],
  ["/orders", "user_id", `1 to ${largest}`, "0", "-1", "9007199254740992"],
  ["/changes", "limit", "1 to 1000", "0", "1001"],
  ["/changes", "wait", "0 to 60", "-1", "61"],
];

test.each(outside)(
  "GET %s names the range and the problem when %s is not an integer from %s",
  async (path, name, range, ...values) => {
    for (const [problem, code, all] of [
      [`must be an integer from ${range}`, "range", values],
      [`must be a whole number from ${range}`, "type", noIntegers],
    ] as const)
      for (const value of all) {
        const response = await server.call("GET", `${path}?${name}=${value}`);
        expectError(response, 400, `Validation failed: ${name} ${problem}`);
        expect([value, response.json.meta.problems[0].code]).toEqual([value, code]);
      }
  },
);

const idsRule = "id must be 1 to 100 ids, separated by commas: id=1,2";
const statuses = "pending, paid, shipped, delivered, canceled";
type Rejected = [query: string, problem: string | RegExp];
const eachOf = (start: string, problem: string | RegExp, values: readonly string[]): Rejected[] =>
  values.map((value) => [start + value, problem]);
const rejected: Rejected[] = [
  ["/users?limit", /^limit must be a whole number/],
  ["/users?limit=5?limit=6", /^limit must be a whole number/],
  ["/users?limit=5&limit=5", "limit is given more than once"],
  ["/users?limit=5&offset=1&li%6Dit=6", "limit is given more than once"],
  ["/users?__proto__=1&__proto__=2", "__proto__ is given more than once"],
  ["/users?after=1&offset=0", "offset cannot be combined with after"],
  ["/changes?after=1&offset=1", "offset cannot be combined with after"],
  [`/users?${"&".repeat(99)}lmit=5`, "lmit is not allowed"],
  ["/users?Limit=5", "Limit is not allowed"],
  ["/users?limit[]=5", /^limit(\[\]|%5B%5D) is not allowed$/],
  ["/users?__proto__=1", "__proto__ is not allowed"],
  ["/users?access_token=hunter2", "access_token is not allowed"],
  ["/users?user_id=1", "user_id is not allowed"],
  ["/users?=5", /is not allowed$/],
  [`/users?${"~/".repeat(99)}=5`, `${"~/".repeat(50)}… is not allowed`],
  ["/users?limit=%", /^limit must be/],
  ["/users?limit=5%zz", /^limit must be/],
  ["/users?%zz=5", /./],
  ["/users?limit=%ff", "limit must be percent-encoded UTF-8"],
  ["/users?%ff=1", "query must be percent-encoded UTF-8"],
  ...eachOf("/orders?sort=", "sort must be one of id, -id", [
    ...["", "ID", "+id", "%2Did%20", "--id", "name", "id,-id"],
  ]),
  ...eachOf("/orders?status=", `status must be one of ${statuses}`, [
    ...["", "Paid", "unknown", "paid,", "paid;pending", "paid,pending,Paid", "__proto__"],
  ]),
  ["/orders?status[]=paid&status=lost", `status must be one of ${statuses}`],
  ["/orders?status[1]=paid", "status[1] is not allowed"],
  ...eachOf("/orders?status=", "status has paid more than once", [
    ...["paid,paid", "paid&status=paid", "paid,pending&status%5B%5D=paid"],
  ]),
  ...eachOf("/orders?created_from=", /^created_from must be a time with an offset, such as /, [
    ...["", "2026-11-20", "2026-11-20T18:57:03", "2026-11-31T00:00:00Z", "1795201023", "now"],
    ...["2026-11-20T24:00:00Z", "0000-01-01T00:00:00%2B00:01"],
  ]),
  ...eachOf(
    "/orders?created_from=2026-11-20T00:00:00Z&created_to=",
    "created_to must be after created_from",
    [...["2026-11-20T00:00:00Z", "2026-11-20T00:59:59.999+01:00"]],
  ),
  [
    "/orders?created_to=2026-11-20T00:00:00Z&created_to=2026-11-21T00:00:00Z",
    "created_to is given more than once",
  ],
  ["/users?created_from=2026-11-20T00:00:00Z", "created_from is not allowed"],
  ...eachOf("/orders?id=", idsRule, "|0|01|1&id=|[1,2]|+1|%2B1|-1|1.0|1,|,1|1,,2|a|1;2".split("|")),
  [`/users?id=${Array.from({ length: 101 }, (_, at) => at + 1)}`, idsRule],
  [`/users?id=1,${"9".repeat(30)},0`, idsRule],
  ...eachOf("/users?id=", "id has 1 more than once", ["1,2,1", "1,2&id=1", "1&id[]=2&id%5B%5D=1"]),
  ["/users?id[0]=1", "id[0] is not allowed"],
  ["/changes?id[]=1", "id[] is not allowed"],
  ["/changes?id=1", "id is not allowed"],
  ...eachOf("/users?reference=", /^reference must be /, [
    ...["", "%20a", "a%20", "a%0A", "a%00", "%7f", "r".repeat(256)],
  ]),
  ["/health?live=1", "live must be text of at most 0 characters"],
  ["/health?live&primary", "primary cannot be combined with live"],
  ["/health?live&live", "live is given more than once"],
  ["/health?standby", "standby is not allowed"],
  ["/changes?include=user", "include must be one of record"],
  ["/changes?feed=", "feed must be text of 1 to 64 characters"],
  [`/changes?feed=${"a".repeat(65)}`, "feed must be text of 1 to 64 characters"],
];

test.each(rejected)("GET %s returns 400", async (path, problem) => {
  const response = await server.call("GET", path);
  expectError(response, 400, /^Validation failed: /, "hunter2");
  const shown = response.json.error.slice("Validation failed: ".length);
  if (typeof problem === "string") expect(shown).toBe(problem);
  else expect(shown).toMatch(problem);
});

test("GET of a list names 20 of its unknown parameters when it has more", async () => {
  const unknown = Array.from({ length: 21 }, (_, at) => `a${at}`);
  const response = await server.call("GET", `/users?${unknown.join("&")}`);
  expectError(response, 400, "Validation failed: a0 is not allowed");
  const { problems } = response.json.meta as { problems: { field: string }[] };
  expect(problems.map(({ field }) => field)).toEqual(unknown.slice(0, 20));
});

test("GET of a list returns 400 when the query has bytes that are not UTF-8", async () => {
  for (const [target, field] of [
    ["users?email=a%@b.example", "email"],
    ["users?limit%=5", "limit"],
    ["orders?user_id=1%", "user_id"],
  ] as const)
    for (const bytes of ["\xff", "\xed\xa0\x80"]) {
      const token = server.readToken;
      const request = rawRequest("GET", `/api/v1/${target.replace("%", bytes)}`, { token });
      const raw = await server.raw(Buffer.from(request, "latin1"));
      expect(raw).toStartWith("HTTP/1.1 400 ");
      expect(raw).toMatch(new RegExp(`"Validation failed: ${field}`));
    }
});

// exercise.ts has a parameter for each operation.
test("a write returns 400 and changes nothing when it has a query parameter", async () => {
  for (const [request, body] of [
    ["POST /users", { email: newEmail() }],
    [`PATCH /orders/${order.id}`, { status: "paid" }],
    [`DELETE /users/${lone.id}`, undefined],
  ] as const) {
    const response = await sendRequest(server, `${request}?limit=5`, { body });
    expectError(response, 400, "Validation failed: limit is not allowed");
  }
  expect((await server.call("GET", `/orders/${order.id}`)).json.data).toEqual(order);
  expect((await server.call("GET", "/users")).json.meta.total).toBe(2);
});

test("GET /health tells whether the server works, or with live only whether it runs", async () => {
  for (const query of ["", "?primary", "?primary=", "?live"]) {
    const { json } = await server.call("GET", `/health${query}`, { token: null });
    expect([query, json.data.status]).toEqual([query, query === "?live" ? "live" : "ok"]);
  }
});
