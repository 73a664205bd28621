import { expect, test } from "bun:test";
import { fingerprint } from "../../src/domain/idempotency.ts";

const path = "/api/v1/users";

const equal: [string, string, string][] = [
  ["the members stand in another order", '{"a":1,"b":2}', '{"b":2,"a":1}'],
  ["the order differs deep inside", '{"x":[{"a":1,"b":{"c":1}}]}', '{"x":[{"b":{"c":1},"a":1}]}'],
  [
    "neighbours have other orders",
    '[{"a":1,"b":2},{"b":3,"a":4}]',
    '[{"b":2,"a":1},{"a":4,"b":3}]',
  ],
  ["the order of digits differs", '{"10":1,"9":2,"a":3}', '{"a":3,"9":2,"10":1}'],
  ["white space differs", '{"a":[1,2]}', ' { "a" : [ 1 ,\n2 ] } '],
  ["a number is written in another way", '{"a":1,"b":100}', '{"a":1.0,"b":1e2}'],
  ["zero has a sign", '{"a":0}', '{"a":-0}'],
  ["characters are escaped", '{"a":"é/"}', '{"\\u0061":"\\u00e9\\/"}'],
];

test.each(equal)("fingerprint is the same when %s", (_when, left, right) => {
  const print = (text: string) => fingerprint("POST", path, JSON.parse(text));
  expect(print(left)).toBe(print(right));
});

test("fingerprint differs when the method, the path or the JSON value differs, and is the same in every run", () => {
  const bodies = [
    ...'{} [] null "" "null" {"a":1} {"a":"1"} {"a":1.5} {"a":true} {"a":null}'.split(" "),
    ...'{"a":{}} {"a":[]} {"a":""} {"a":[1,2]} {"a":[2,1]} {"a":[[1,2]]}'.split(" "),
    ...'{"a":[[1],[2]]} {"a":{"0":1,"1":2}} {"a":{"b":1}} {"a":{"b":1},"b":1}'.split(" "),
    ...'{"a":1,"b":2} {"a":2,"b":1} {"A":1} {"__proto__":{"a":1}}'.split(" "),
    ...'{"__proto__":{"a":2}} {"toJSON":"a"} {"a":"é"} {"a":"e\u0301"}'.split(" "),
    '{"a ":1}',
    ...'[{"a":1},{"b":1}] [{"a":1},{"c":1}] [{"a":1},{"a":1}] [{"a":1},{"a":1,"b":1}]'.split(" "),
  ];
  const prints = bodies.map((body) => fingerprint("POST", path, JSON.parse(body)));
  prints.push(fingerprint("PUT", path, {}), fingerprint("POST", "/api/v1/orders", {}));
  prints.push(fingerprint("POST", `${path}\n{}`, undefined));
  expect(new Set(prints).size).toBe(bodies.length + 3);
  // SHA-256 of `POST /api/v1/users` LF `{"a":1}`. It must not change, because it is stored.
  expect(fingerprint("POST", path, { a: 1 })).toBe(
    "386f4f612405847e83b1c1a328e5878fb8c2e0808108a7159aca0c7e57305abb",
  );
});
