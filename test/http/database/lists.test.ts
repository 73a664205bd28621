import { afterAll, beforeAll, expect, test } from "bun:test";
import { links, newOrder, newUser } from "../make.ts";
import { startServer, type TestResponse } from "../server.ts";

const server = await startServer();
const largest = "9007199254740991"; // 2^53 − 1
/** By ascending id, like the lists: 60 users, of whom the first two have 53 and 2 orders. */
const users: TestResponse["json"][] = [];
const orders: TestResponse["json"][] = [];
beforeAll(async () => {
  for (let at = 0; at < 60; at += 1) users.push(await newUser(server));
  for (let at = 0; at < 55; at += 1) {
    let order = await newOrder(server, users[at % 20 === 10 ? 1 : 0].id);
    const status = ["paid", "canceled", undefined, undefined, undefined][at % 5];
    if (status !== undefined) {
      order = (await server.call("PATCH", `/orders/${order.id}`, { body: { status } })).json.data;
    }
    orders.push(order);
  }
});
afterAll(() => server[Symbol.asyncDispose]());

const of = (path: string) => (path.startsWith("/users") ? users : orders);

/** @returns the offset of each relation. Every target must have the same path, limit and filters. */
function offsets(response: TestResponse, path: string, kept: Record<string, string>) {
  const pairs = Object.entries(links(response)).map(([rel, target]) => {
    const url = new URL(target, "http://localhost");
    const { offset, ...rest } = Object.fromEntries(url.searchParams);
    expect(url.pathname).toBe(path);
    expect(rest).toEqual(kept);
    return [rel, Number(offset)];
  });
  return Object.fromEntries(pairs);
}

for (const path of ["/users", "/orders"]) {
  test(`GET ${path} returns every record once when next is followed from after=0`, async () => {
    const found: TestResponse["json"][] = [];
    for (let next: string | undefined = `${path}?after=0&limit=20`; next !== undefined; ) {
      const response: TestResponse = await server.call("GET", next);
      expect(response.json.meta).toEqual({ total: of(path).length, limit: 20, offset: 0 });
      expect(links(response)["first"]).toBe(`${path}?limit=20&after=0`);
      found.push(...response.json.data);
      const { first, next: following, ...others } = links(response);
      expect([first, others]).toEqual([expect.any(String), {}]);
      if (following !== undefined) {
        expect(following).toBe(`${path}?limit=20&after=${found.at(-1)?.id}`);
      }
      next = following;
    }
    expect(found).toEqual(of(path));
  });

  test(`GET ${path} returns the newest records first when sort is -id`, async () => {
    const newest = of(path).toReversed();
    for (const [start, position] of [
      [`${path}?limit=20&sort=-id`, "offset"],
      [`${path}?sort=-id&after=0&limit=20`, "after"],
    ] as const) {
      const found: TestResponse["json"][] = [];
      for (let next: string | undefined = start; next !== undefined; ) {
        const response: TestResponse = await server.call("GET", next);
        const offset = position === "offset" ? found.length : 0;
        expect(response.json.meta).toEqual({ total: newest.length, limit: 20, offset });
        expect(links(response)["first"]).toBe(`${path}?limit=20&${position}=0&sort=-id`);
        found.push(...response.json.data);
        next = links(response)["next"];
        if (next === undefined) break;
        const target = position === "offset" ? found.length : found.at(-1)?.id;
        expect(next).toBe(`${path}?limit=20&${position}=${target}&sort=-id`);
      }
      expect(found).toEqual(newest);
    }
    const sorted = await server.call("GET", `${path}?sort=id&limit=5`);
    expect(sorted.json.data).toEqual(of(path).slice(0, 5));
  });

  test(`GET ${path} returns an empty page when after is beyond the last id`, async () => {
    const response = await server.call("GET", `${path}?after=${largest}`);
    expect([response.status, response.json.data]).toEqual([200, []]);
    expect(response.json.meta.total).toBe(of(path).length);
    expect(Object.keys(links(response))).toEqual(["first"]);
  });

  test(`GET ${path} returns the first 50 records and the exact total when there is no query`, async () => {
    const response = await server.call("GET", path);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(response.headers.get("cache-control")).toBe("no-store");
    expect(response.headers.get("etag")).toBeNull();
    const meta = { total: of(path).length, limit: 50, offset: 0 };
    expect(response.json).toEqual({ data: of(path).slice(0, 50), error: null, meta });
    const empty = await server.call("GET", `${path}?`);
    expect(empty.text).toBe(response.text);
  });

  for (const { query, limit, offset } of [
    { query: "limit=1", limit: 1, offset: 0 },
    { query: "limit=1000", limit: 1000, offset: 0 },
    { query: "limit=%35", limit: 5, offset: 0 },
    { query: "&&limit=5&", limit: 5, offset: 0 },
    { query: "offset=49", limit: 50, offset: 49 },
    { query: "offset=54&limit=1", limit: 1, offset: 54 },
    { query: "limit=10&offset=50", limit: 10, offset: 50 },
    { query: "offset=60", limit: 50, offset: 60 },
    { query: "offset=61&limit=2", limit: 2, offset: 61 },
    { query: `offset=${largest}&limit=1000`, limit: 1000, offset: Number(largest) },
  ]) {
    test(`GET ${path} returns the requested page when the query is ${query}`, async () => {
      const response = await server.call("GET", `${path}?${query}`);
      expect(response.status, response.text).toBe(200);
      const meta = { total: of(path).length, limit, offset };
      expect(response.json).toEqual({
        data: of(path).slice(offset, offset + limit),
        error: null,
        meta,
      });
    });
  }

  for (const { limit, offset, expected } of [
    { limit: 10, offset: 0, expected: { first: 0, next: 10, last: 50 } },
    { limit: 10, offset: 20, expected: { first: 0, prev: 10, next: 30, last: 50 } },
    { limit: 10, offset: 50, expected: { first: 0, prev: 40, last: 50 } },
    { limit: 20, offset: 7, expected: { first: 0, prev: 0, next: 27 } },
    { limit: 10, offset: 70, expected: { first: 0, prev: 50, last: 50 } },
    { limit: 10, offset: Number(largest), expected: { first: 0, prev: 50, last: 50 } },
    { limit: 1000, offset: 0, expected: { first: 0, last: 0 } },
    { limit: 5, offset: 0, expected: { first: 0, next: 5, last: path === "/users" ? 55 : 50 } },
  ]) {
    test(`Link of ${path} has the existing pages when offset is ${offset} and limit ${limit}`, async () => {
      const response = await server.call("GET", `${path}?limit=${limit}&offset=${offset}`);
      const found = offsets(response, path, { limit: `${limit}` });
      const { last, ...rest } = found;
      // If pages do not start at a multiple of the limit, the offset of the last one is not defined.
      expect(last).toBeNumber();
      expect("last" in expected ? found : rest).toEqual(expected);
    });
  }
}

const filters: Record<string, (order: { user_id: number; status: string }) => boolean> = {
  "user_id=1st": (order) => order.user_id === users[0].id,
  "user_id=2nd": (order) => order.user_id === users[1].id,
  "user_id=3rd": () => false,
  [`user_id=${largest}`]: () => false,
  "status=paid": (order) => order.status === "paid",
  "status=canceled": (order) => order.status === "canceled",
  "status=delivered": () => false,
  "user_id=1st&status=pending": (order) =>
    order.user_id === users[0].id && order.status === "pending",
  "status=paid&user_id=2nd": (order) => order.user_id === users[1].id && order.status === "paid",
};
for (const [template, matches] of Object.entries(filters)) {
  test(`GET /orders returns each match once when next is followed with ${template}`, async () => {
    const ids: Record<string, string> = {
      "1st": users[0].id,
      "2nd": users[1].id,
      "3rd": users[2].id,
    };
    const query = template.replace(/1st|2nd|3rd/, (word) => `${ids[word]}`);
    const kept = { ...Object.fromEntries(new URLSearchParams(query)), limit: "7" };
    const expected = orders.filter(matches);
    const walked: unknown[] = [];
    const start = await server.call("GET", `/orders?${query}&limit=7&offset=14`);
    let next = links(start).first;
    for (let page = 0; next !== undefined; page += 1) {
      const response: TestResponse = await server.call("GET", next);
      expect(response.json.meta).toEqual({ total: expected.length, limit: 7, offset: page * 7 });
      expect(offsets(response, "/orders", kept).last).toBe(
        Math.floor(Math.max(expected.length - 1, 0) / 7) * 7,
      );
      walked.push(...response.json.data);
      next = links(response).next;
    }
    expect(walked).toEqual(expected);
  });
}

test("Link encodes the email filter when it has reserved characters", async () => {
  const email = `a+b&c=d%#-${crypto.randomUUID()}@example.com`;
  await using own = await startServer();
  await newUser(own, { email });
  const response = await own.call("GET", `/users?limit=1&email=${encodeURIComponent(email)}`);
  expect(response.json.meta.total).toBe(1);
  const again = await own.call("GET", links(response).first ?? "");
  expect(again.json).toEqual(response.json);
  const everyone = await own.call("GET", "/orders");
  expect(everyone.json).toEqual({
    data: [],
    error: null,
    meta: { total: 0, limit: 50, offset: 0 },
  });
  expect(everyone.headers.get("link")).toBe(
    '</api/v1/orders?limit=50&offset=0>; rel="first", </api/v1/orders?limit=50&offset=0>; rel="last"',
  );
});
