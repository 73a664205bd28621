import { expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import type { InputSchema } from "../../src/http/params.ts";
import { order_params, pathOf, user_params } from "../../src/http/params.ts";
import { no_query, querySchema, readQuery } from "../../src/http/query.ts";
import { page_query } from "../../src/page.ts";
import { expectThrown } from "../expect-error.ts";

const MAX = Number.MAX_SAFE_INTEGER;
const read = <Value>(input: InputSchema<Value>, value: unknown) =>
  input["~standard"].validate(value).value;

const paths: [string, string][] = [
  ["http://localhost:3000/api/v1/users", "/api/v1/users"],
  ["http://localhost/api/v1/users?limit=5", "/api/v1/users"],
  ["http://a/api/v1/health", "/api/v1/health"],
  ["https://[::1]:3000/a/b?c=/d?e", "/a/b"],
  ["http://user@h/api", "/api"],
  ["http://localhost/", "/"],
  ["http://localhost//a", "//a"],
  ["http://localhost/a%2Fb", "/a%2Fb"],
];

for (const [url, path] of paths) {
  test(`\`pathOf\` returns ${path} when the URL is ${url}`, () => {
    expect(pathOf(url)).toBe(path);
  });
}

test("`user_params` returns the id when it is canonical", () => {
  for (const id of [1, 10, 123, MAX]) expect(read(user_params, { id: String(id) })).toEqual({ id });
});

test("`user_params` is 0, which no user has, when the id is larger than any", () => {
  for (const id of [String(2n ** 53n), String(2n ** 64n), "9".repeat(400)]) {
    expect(read(user_params, { id })).toEqual({ id: 0 });
  }
});

test("`order_params` returns the id when Go's ParseInt would accept it", () => {
  const ids: [string, number][] = [
    ["1", 1],
    ["+1", 1],
    ["007", 7],
    ["+0000000000000000000000000000001", 1],
    [String(MAX), MAX],
  ];
  for (const [id, expected] of ids) expect(read(order_params, { id })).toEqual({ id: expected });
});

test("`order_params` returns 0, which no order has, when no order can have the 64-bit integer", () => {
  const ids = ["0", "-0", "-1", String(2n ** 53n), String(2n ** 63n - 1n), String(-(2n ** 63n))];
  for (const id of ids) expect(read(order_params, { id })).toEqual({ id: 0 });
});

const url = "http://localhost/api/v1/users";

const queries: [string, Record<string, string>][] = [
  ["", {}],
  ["?", {}],
  ["?&&", {}],
  ["?a=1", { a: "1" }],
  ["?a=1&b=2", { a: "1", b: "2" }],
  ["?&a=1&", { a: "1" }],
  ["?a", { a: "" }],
  ["?a=", { a: "" }],
  ["?=1", { "": "1" }],
  ["?a=b=c", { a: "b=c" }],
  ["?a=b?c", { a: "b?c" }],
  ["?a=b+c@d.ef", { a: "b+c@d.ef" }],
  ["?a=b%2Bc%20d%26", { a: "b+c d&" }],
  ["?%61=%C3%A9", { a: "é" }],
  ["?a=%2561", { a: "%61" }],
];

for (const [text, expected] of queries) {
  test(`\`readQuery\` returns ${JSON.stringify(expected)} when the query is "${text}"`, () => {
    expect(readQuery(url + text)).toEqual(expected);
  });
}

test("`readQuery` ignores the path when it has an ampersand", () => {
  expect(readQuery("http://localhost/s/a&limit=9?limit=5")).toEqual({ limit: "5" });
});

const no_queries: [string, RegExp][] = [
  ["?a=1&a=2", /: a is given more than once$/],
  ["?a=1&a=1", /: a is given more than once$/],
  ["?a&b=1&%61=2", /: a is given more than once$/],
  ["?__proto__=1&__proto__=2", /: __proto__ is given more than once$/],
  ["?a=%", /: a must be percent-encoded UTF-8$/],
  ["?a=%zz", /: a must be percent-encoded UTF-8$/],
  ["?a=%ff", /: a must be percent-encoded UTF-8$/],
  ["?a=%ed%a0%80", /: a must be percent-encoded UTF-8$/],
  ["?%ff=a", /: query must be percent-encoded UTF-8$/],
];

for (const [text, message] of no_queries) {
  test(`\`readQuery\` rejects the query when it is "${text}"`, () => {
    expectThrown(() => readQuery(url + text), "invalid", message);
  });
}

const listing = querySchema(
  Type.Object(
    { ...page_query, text: Type.Optional(Type.String()) },
    { additionalProperties: false },
  ),
);

test("`querySchema` applies the defaults and parses canonical integers", () => {
  expect(read(listing, url)).toEqual({ limit: 50, offset: 0 });
  expect(read(listing, `${url}?limit=1&offset=${MAX}`)).toEqual({ limit: 1, offset: MAX });
  expect(read(listing, `${url}?limit=1000&text=007`)).toEqual({
    limit: 1000,
    offset: 0,
    text: "007",
  });
});

test("`no_query` rejects every parameter", () => {
  expectThrown(() => read(no_query, `${url}?lmit=1`), "invalid", / is not allowed$/);
  expect(read(no_query, `${url}?`)).toEqual({});
});
