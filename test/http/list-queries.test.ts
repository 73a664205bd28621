import { expect, test } from "bun:test";
import { countOf, expectError, newEmail, newOrder, newUser } from "./make.ts";
import { rawRequest } from "./raw.ts";
import { sendRequest, startSharedServer } from "./server.ts";

const server = await startSharedServer();
const user = await newUser(server);
const order = await newOrder(server, user.id);

const largest = "9007199254740991"; // 2^53 − 1
const bounds = {
  limit: ["1", "1000"],
  offset: ["0", largest],
  after: ["0", largest],
  wait: ["0", "60"],
  user_id: ["1", largest],
} as const;
const range = (name: keyof typeof bounds) =>
  `${name} must be an integer from ${bounds[name].join(" to ")}`;

const asType = (problem: string) => problem.replace("an integer", "a whole number");

/** Texts that are not integers in base 10, without a sign, zeros or white space before them. */
const noIntegers = [
  ...["+5", "%2B5", "%205", "5%20", "5.0", "0x10", "1e1", "", "abc", "1_0", "5n", "5;x", "05"],
  ...["%2535", "%D9%A5", "5%00", "null", "1,000", "5%0A"],
];
const outside: [path: string, name: keyof typeof bounds, ...values: string[]][] = [
  ["/users", "limit", "0", "-1", "1001", "9007199254740992", "1".repeat(30)],
  ["/users", "offset", "-1", "9007199254740992", "9223372036854775808"],
  ["/users", "after", "-1", "9007199254740992"],
  ["/orders", "limit", "0", "1001"],
  ["/orders", "user_id", "0", "-1", "9007199254740992"],
  ["/changes", "limit", "0", "1001"],
  ["/changes", "wait", "-1", "61"],
];

test.each(outside)(
  "GET %s names the range and the problem when %s is outside",
  async (path, name, ...values) => {
    for (const value of [...values, ...noIntegers]) {
      const response = await server.call("GET", `${path}?${name}=${value}`);
      const code = noIntegers.includes(value) ? "type" : "range";
      const problem = code === "type" ? asType(range(name)) : range(name);
      expectError(response, 400, `Validation failed: ${problem}`);
      expect([value, response.json.meta.problems[0]]).toMatchObject([value, { field: name, code }]);
    }
  },
);

const idsRule = "id must be 1 to 100 ids, separated by commas: id=1,2";
const statuses = "pending, paid, shipped, delivered, canceled";
const rejected: [query: string, problem: string | RegExp][] = [
  ["/users?limit", asType(range("limit"))],
  ["/users?limit=5?limit=6", asType(range("limit"))],
  ["/users?limit=5&limit=5", "limit is given more than once"],
  ["/users?limit=5&offset=1&li%6Dit=6", "limit is given more than once"],
  ["/users?offset=0&offset=", "offset is given more than once"],
  ["/users?__proto__=1&__proto__=2", "__proto__ is given more than once"],
  ["/users?after=1&offset=0", "offset cannot be combined with after"],
  ["/orders?offset=2&after=1", "offset cannot be combined with after"],
  ["/changes?after=1&offset=1", "offset cannot be combined with after"],
  [`/users?${"&".repeat(99)}lmit=5`, "lmit is not allowed"],
  ["/users?Limit=5", "Limit is not allowed"],
  ["/users?limit[]=5", /^limit(\[\]|%5B%5D) is not allowed$/],
  ["/users?__proto__=1", "__proto__ is not allowed"],
  ["/users?access_token=hunter2", "access_token is not allowed"],
  ["/users?user_id=1", "user_id is not allowed"],
  ["/orders?email=a@b.example", "email is not allowed"],
  ["/changes?sort=-id", "sort is not allowed"],
  ["/users?=5", /is not allowed$/],
  [`/users?${"~/".repeat(99)}=5`, `${"~/".repeat(50)}… is not allowed`],
  ["/users?limit=%", /^limit must be/],
  ["/users?limit=5%zz", /^limit must be/],
  ["/users?%zz=5", /./],
  ["/users?limit=%ff", "limit must be percent-encoded UTF-8"],
  ["/users?%ff=1", "query must be percent-encoded UTF-8"],
  ...["", "ID", "+id", "%2Did%20", "--id", "name", "id,-id"].map((sort): (typeof rejected)[0] => [
    `/orders?sort=${sort}`,
    "sort must be one of id, -id",
  ]),
  ...["", "Paid", "unknown", "paid,pending", "__proto__"].map((status): (typeof rejected)[0] => [
    `/orders?status=${status}`,
    `status must be one of ${statuses}`,
  ]),
  ["/orders?status=paid%00", /^status must be /],
  ..."|0|01|1&id=|[1,2]|1&id[]=x|+1|%2B1|-1|1.0|1,|,1|1,,2|1, 2|a|1;2"
    .split("|")
    .map((ids): (typeof rejected)[0] => [`/orders?id=${ids}`, idsRule]),
  [`/users?id=${Array.from({ length: 101 }, (_, at) => at + 1)}`, idsRule],
  [`/users?id=1,${"9".repeat(30)},0`, idsRule],
  ...["1,2,1", "1,2&id=1", "1&id[]=2&id%5B%5D=1"].map((ids): (typeof rejected)[0] => [
    `/users?id=${ids}`,
    "id has 1 more than once",
  ]),
  ["/users?id[0]=1", "id[0] is not allowed"],
  ["/changes?id[]=1", "id[] is not allowed"],
  ["/changes?id=1", "id is not allowed"],
  ...["", "%20a", "a%20", "a%0A", "a%00", "%7f", "r".repeat(256)].map(
    (reference): (typeof rejected)[0] => [`/users?reference=${reference}`, /^reference must be /],
  ),
  ["/changes?reference=a", "reference is not allowed"],
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

test("GET of a list returns 404 when its path contains something like a query", async () => {
  for (const path of ["/users", "/orders"])
    for (const hidden of ["&limit=9?limit=5", "&limit=9", ";limit=9", "%3Flimit=9", "/"])
      expectError(await server.call("GET", `${path}${hidden}`), 404, /^not found/);
});

test("GET of a list returns 400 when the query has bytes that are not UTF-8", async () => {
  for (const [target, field] of [
    ["users?email=a%@b.example", "email"],
    ["users?limit=5%", "limit"],
    ["users?after=1%", "after"],
    ["users?limit%=5", "limit"],
    ["orders?status=paid%", "status"],
    ["orders?user_id=1%", "user_id"],
  ]) {
    const [before = "", after = ""] = rawRequest("GET", `/api/v1/${target}`, {
      token: server.readToken,
    }).split("%");
    for (const bytes of [[0xff], [0xe4], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xe2, 0x82]]) {
      const sent = [Buffer.from(before), Buffer.from(bytes), Buffer.from(after)];
      const raw = await server.raw(Buffer.concat(sent));
      expect(raw).toStartWith("HTTP/1.1 400 ");
      expect(raw).toMatch(new RegExp(`"Validation failed: ${field}`));
    }
  }
});

test("a request for one record returns 400 when it has a query parameter", async () => {
  const [oneUser, oneOrder] = [`/users/${user.id}`, `/orders/${order.id}`];
  const bodies = { "POST /users": { email: newEmail() }, [`PATCH ${oneOrder}`]: {} };
  for (const request of [
    `GET ${oneUser}`,
    `GET ${oneOrder}`,
    `DELETE ${oneUser}`,
    ...Object.keys(bodies),
  ])
    for (const name of ["limit", "id"]) {
      const response = await sendRequest(server, `${request}?${name}=5`, { body: bodies[request] });
      expectError(response, 400, `Validation failed: ${name} is not allowed`);
    }
  expect(await countOf(server, "/users")).toBe(1);
});
