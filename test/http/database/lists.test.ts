// Pages, their links, and records by reference and id. That a list has what its filters say is a rule of the model of the
// contract.
import { expect, test } from "bun:test";
import { expectError, links, newOrder, newRecord, newUser } from "../make.ts";
import { startSharedServer, type TestResponse } from "../server.ts";

const server = await startSharedServer();
const users: TestResponse["json"][] = [];
for (let at = 0; at < 13; at += 1) users.push(await newUser(server));
const [buyer] = users;

test("GET /orders has links that keep all filters, to a page that exists", async () => {
  for (let at = 0; at < 5; at += 1) await newOrder(server, buyer.id);
  const since = "created_from=1970-01-01T00%3A00%3A00.000Z";
  const at = (position: string) =>
    `/orders?limit=2&${position}&user_id=${buyer.id}&status=pending,paid&${since}&sort=-id`;
  const linksOf = async (position: string) => links(await server.call("GET", at(position)));
  const [first, prev, last] = [at("offset=0"), at("offset=2"), at("offset=4")];
  expect(await linksOf("offset=2")).toEqual({ first, prev: first, next: last, last });
  expect(await linksOf("offset=4")).toEqual({ first, prev, last });
  const { json } = await server.call("GET", at("after=0"));
  const ids = json.data.map(({ id }: { id: number }) => id);
  const next = at(`after=${ids[1]}`);
  expect(await linksOf("after=0")).toEqual({ first: at("after=0"), next });
  expect(await linksOf(`after=${ids[1] - 2}`)).toEqual({ first: at("after=0") });
});

test("GET /users has links to others at an offset that is no multiple of the limit, or past the end", async () => {
  const at = (offset: number) => `/users?limit=5&offset=${offset}`;
  const page = await server.call("GET", "/users?limit=%35&&offset=3&");
  expect(page.json.data).toEqual(users.slice(3, 8));
  expect(links(page)).toEqual({ first: at(0), prev: at(0), next: at(8), last: at(10) });
  const past = await server.call("GET", "/users?limit=5&offset=9007199254740991");
  expect(links(past)).toEqual({ first: at(0), prev: at(10), last: at(10) });
});

// The model of the contract has that a reference is given once, and found. Invalid ones are in record-input.test.ts.
test.each(["/users", "/orders"])("a reference of %s is found as it is", async (path) => {
  const others = ["😀".repeat(255), "a b", "№ 2026/10,42&x=y+%41;#?'\"\\", "a\u0301", "á", "Á"];
  for (const reference of ["1", "ΑΣ", ...others]) {
    const record = await newRecord(server, path, buyer.id, { reference });
    const found = await server.call("GET", `${path}?reference=${encodeURIComponent(reference)}`);
    expect([record.reference, found.json.data]).toEqual([reference, [record]]);
    expect((await server.call("GET", links(found)["first"] ?? "")).text).toBe(found.text);
  }
  const other = await newRecord(server, path, buyer.id);
  const taken = await server.call("PATCH", `${path}/${other.id}`, { body: { reference: "1" } });
  expectError(taken, 409, "reference is already taken");
});

// The model of the contract has lists of ids with filters, in both orders, and on every page.
test.each(["/users", "/orders"])(
  "GET %s?id has the records that exist, with their total, and links with the ids as they were sent",
  async (path) => {
    const records: TestResponse["json"][] = [];
    for (let n = 0; n < 3; n += 1) records.push(await newRecord(server, path, buyer.id));
    const [a, b, c] = records.map(({ id }) => id);
    const beyond = "9007199254740993,9223372036854775808";
    const ids = `${c},${a},${beyond},${b}`;
    const get = (query: string) => server.call("GET", `${path}?${query}`);
    const all = await get(`id=${ids}`);
    expect(all.json.data).toEqual(records);
    expect(all.json.meta).toEqual({ total: 3, limit: 100, offset: 0 });
    expect(links(all)["first"]).toStartWith(`${path}?limit=100&offset=0&id=${c},${a},`);
    const spelled = [encodeURIComponent(ids), `${c}&id=${a},${beyond}&id[]=${b}`];
    for (const same of [...spelled, `${c},${a}&id%5B%5D=${beyond}&id%5B%5D=${b}`]) {
      expect((await get(`id=${same}`)).text).toBe(all.text);
      expect(links(await get(`id=${same}`))).toEqual(links(all));
    }
    const hundred = Array.from({ length: 99 }, (_, at) => 1_000_000 + at);
    expect((await get(`id=${b},${hundred}`)).json.meta.total).toBe(1);
    const page = await get(`id=${c},${a},${b}&limit=1&offset=1&sort=-id`);
    const at = (offset: number) => `${path}?limit=1&offset=${offset}&id=${c},${a},${b}&sort=-id`;
    expect(links(page)).toEqual({ first: at(0), prev: at(0), next: at(2), last: at(2) });
    const { next } = links(await get(`after=${a}&id=${c},${a},${b}&limit=1`));
    expect(next).toBe(`${path}?limit=1&after=${b}&id=${c},${a},${b}`);
  },
);
