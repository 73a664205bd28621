import { expect, test } from "bun:test";
import { links, newOrder, newUser } from "../make.ts";
import { startSharedServer, type TestResponse } from "../server.ts";

const server = await startSharedServer();
const largest = "9007199254740991"; // 2^53 − 1
/** By ascending id, like the lists: 60 users, of whom the first two have 53 and 2 orders. */
const users: TestResponse["json"][] = [];
const orders: TestResponse["json"][] = [];
for (let at = 0; at < 60; at += 1) users.push(await newUser(server));
for (let at = 0; at < 55; at += 1) {
  let order = await newOrder(server, users[at % 20 === 10 ? 1 : 0].id);
  const status = ["paid", "canceled", undefined, undefined, undefined][at % 5];
  if (status !== undefined) {
    order = (await server.call("PATCH", `/orders/${order.id}`, { body: { status } })).json.data;
  }
  orders.push(order);
}

const of = (path: string) => (path.startsWith("/users") ? users : orders);

const twice = (path: string, kept: string) =>
  ["after", "offset"].map((position) => [path, kept, position] as const);
const byUser = (at: number) => `&user_id=${users[at].id}`;
for (const [path, kept, position] of [
  ...["", "&sort=-id"].flatMap((kept) => [...twice("/users", kept), ...twice("/orders", kept)]),
  ...[byUser(0), byUser(2), "&status=paid", `${byUser(1)}&status=paid`].flatMap((kept) =>
    twice("/orders", kept),
  ),
] as const) {
  test(`GET ${path} returns every match once when next is followed by ${position} with ${kept}`, async () => {
    const { sort, user_id, status } = Object.fromEntries(new URLSearchParams(kept));
    const matching = of(path).filter(
      (record) =>
        (user_id === undefined || record.user_id === Number(user_id)) &&
        (status === undefined || record.status === status),
    );
    const expected = sort === undefined ? matching : matching.toReversed();
    const found: TestResponse["json"][] = [];
    let target: string | undefined = `${path}?${kept}&${position}=0&limit=20`;
    while (target !== undefined) {
      const response: TestResponse = await server.call("GET", target);
      const offset = position === "offset" ? found.length : 0;
      expect(response.json.meta).toEqual({ total: expected.length, limit: 20, offset });
      found.push(...response.json.data);
      const linkTo = (at: number) => `${path}?limit=20&${position}=${at}${kept}`;
      const { first, next, ...others } = links(response);
      expect(first).toBe(linkTo(0));
      const last = Math.floor(Math.max(expected.length - 1, 0) / 20) * 20;
      if (position === "after") expect(others).toEqual({});
      else expect(others["last"]).toBe(linkTo(last));
      const end = position === "offset" ? found.length : found.at(-1)?.id;
      target = next;
      expect(target).toBe(found.length >= expected.length ? undefined : linkTo(end));
    }
    expect(found).toEqual(expected);
  });
}

for (const path of ["/users", "/orders"]) {
  test(`GET ${path} returns the first 50 records and the exact total when there is no query`, async () => {
    const response = await server.call("GET", path);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(response.headers.get("cache-control")).toBe("no-store");
    expect(response.headers.get("etag")).toBeNull();
    const meta = { total: of(path).length, limit: 50, offset: 0 };
    expect(response.json).toEqual({ data: of(path).slice(0, 50), error: null, meta });
    for (const same of ["", "sort=id"]) {
      expect((await server.call("GET", `${path}?${same}`)).text).toBe(response.text);
    }
  });
}

// More pages are in page.test.ts, and the first and the last one are above.
test.each([
  ["limit=%35&offset=8", 5, 8, { first: 0, prev: 3, next: 13, last: 55 }],
  ["offset=20&&limit=10&", 10, 20, { first: 0, prev: 10, next: 30, last: 50 }],
  [`limit=10&offset=${largest}`, 10, Number(largest), { first: 0, prev: 50, last: 50 }],
])(
  "GET /users returns the page, and links to others, when the query is %s",
  async (query, limit, offset, expected) => {
    const response = await server.call("GET", `/users?${query}`);
    const data = users.slice(offset, offset + limit);
    expect(response.json).toEqual({ data, error: null, meta: { total: 60, limit, offset } });
    const targets = Object.entries(expected).map(([rel, at]) => [
      rel,
      `/users?limit=${limit}&offset=${at}`,
    ]);
    expect(links(response)).toEqual(Object.fromEntries(targets));
  },
);
