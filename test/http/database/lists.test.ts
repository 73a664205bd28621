// Pages and their links. That a list has what its filters say is a rule of the model of the contract.
import { expect, test } from "bun:test";
import { links, newOrder, newUser } from "../make.ts";
import { startSharedServer, type TestResponse } from "../server.ts";

const server = await startSharedServer();
/** By ascending id, like the lists: 60 users, of whom the first two have 53 and 2 orders. */
const users: TestResponse["json"][] = [];
for (let at = 0; at < 60; at += 1) users.push(await newUser(server));
for (let at = 0; at < 55; at += 1) {
  const { id } = await newOrder(server, users[at % 20 === 10 ? 1 : 0].id);
  if (at % 5 === 0) await server.call("PATCH", `/orders/${id}`, { body: { status: "paid" } });
}

const since = "&created_from=1970-01-01T00%3A00%3A00.000Z";
const ofUser = (at: number) => `&user_id=${users[at].id}`;
const some = `${ofUser(0)}&status=pending,paid${since}`;
test.each([
  ...["", "&sort=-id"].map((kept) => ["/users", kept] as const),
  ...["", ofUser(0), ofUser(2), "&status=paid", since, some].map(
    (kept) => ["/orders", kept] as const,
  ),
])("GET %s returns every match once when next is followed with %s", async (path, kept) => {
  const whole = (await server.call("GET", `${path}?limit=1000${kept}`)).json;
  const { total } = whole.meta;
  expect(whole.data).toHaveLength(total);
  for (const position of ["after", "offset"]) {
    const found: TestResponse["json"][] = [];
    const linkTo = (at: number) => `${path}?limit=20&${position}=${at}${kept}`;
    let next: string | undefined = linkTo(0);
    while (next !== undefined) {
      const offset = position === "offset" ? found.length : 0;
      const response: TestResponse = await server.call("GET", next);
      expect(response.json.meta).toEqual({ total, limit: 20, offset });
      found.push(...response.json.data);
      const end = position === "offset" ? found.length : found.at(-1)?.id;
      next = found.length < total ? linkTo(end) : undefined;
      const last = linkTo(Math.floor(Math.max(total - 1, 0) / 20) * 20);
      expect(links(response)).toEqual({
        first: linkTo(0),
        ...(next && { next }),
        ...(position === "offset" && { last, ...(offset > 0 && { prev: linkTo(offset - 20) }) }),
      });
    }
    expect(found).toEqual(whole.data);
  }
});

test("GET /users has links to others at an offset that is no multiple of the limit, or past the end", async () => {
  const at = (offset: number) => `/users?limit=5&offset=${offset}`;
  const page = await server.call("GET", "/users?limit=%35&&offset=3&");
  expect(page.json.data).toEqual(users.slice(3, 8));
  expect(links(page)).toEqual({ first: at(0), prev: at(0), next: at(8), last: at(55) });
  const past = await server.call("GET", "/users?limit=5&offset=9007199254740991");
  expect(links(past)).toEqual({ first: at(0), prev: at(55), last: at(55) });
});
