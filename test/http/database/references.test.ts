import { describe, expect, test } from "bun:test";
import { expectError, links, newOrder, newUser, stored } from "../make.ts";
import { startSharedServer, type TestResponse } from "../server.ts";

const server = await startSharedServer();
const buyer = await newUser(server);

describe.each([
  ["/users", (fields = {}) => newUser(server, fields)],
  ["/orders", (fields = {}) => newOrder(server, buyer.id, fields)],
] as const)("references of %s", (path, make) => {
  const send = (method: string, id: number, body: object) =>
    server.call(method, `${path}/${id}`, { body });
  const find = (reference: string) =>
    server.call("GET", `${path}?reference=${encodeURIComponent(reference)}`);

  // Invalid ones are in record-input.test.ts.
  test.each([
    ...["1", "😀".repeat(255), "a b", "№ 2026/10,42&x=y+%41;#?'\"\\", "ΑΣ"],
    ...["a\u0301", "á", "Á"],
  ])("a reference is kept as it is, and finds the record, when it is %s", async (reference) => {
    const record = await make({ reference });
    expect(record.reference).toBe(reference);
    expect(record).toEqual((await server.call("GET", `${path}/${record.id}`)).json.data);
    const found = await find(reference);
    expect(found.json.data).toEqual([record]);
    expect(found.json.meta).toEqual({ total: 1, limit: 50, offset: 0 });
    expect((await server.call("GET", links(found)["first"] ?? "")).text).toBe(found.text);
  });

  // PUT is in exercise.ts.
  test("a write returns 409 and changes nothing when another record has the reference", async () => {
    const taken = await make({ reference: "taken" });
    const { id, email, user_id, currency, items } = await make({ reference: "mine" });
    const state = () => stored(server, `${path}?limit=1`, `${path}/${id}`);
    const before = await state();
    const fields = path === "/users" ? { email: `new-${email}` } : { user_id, currency, items };
    const post = (body: object) => server.call("POST", path, { body });
    for (const response of [
      await send("PATCH", id, { metadata: { a: "1" }, reference: "taken" }),
      await post({ ...fields, reference: "taken" }),
    ])
      expectError(response, 409, "reference is already taken");
    if (path === "/users")
      expectError(await post({ email, reference: "taken" }), 409, "email is already taken");
    expect(await state()).toEqual(before);
    expect((await send("PATCH", taken.id, { reference: "taken" })).json.data).toEqual(taken);
  });

  test("a reference is kept by a PATCH without it, cleared by null, and then free", async () => {
    const { id } = await make({ reference: "first" });
    const kept = await send("PATCH", id, { metadata: { a: "1" } });
    expect(kept.json.data).toMatchObject({ reference: "first", version: 2 });
    const cleared = await send("PATCH", id, { reference: null });
    expect(cleared.json.data).toMatchObject({ reference: null, version: 3 });
    expect((await find("first")).json.meta.total).toBe(0);
    expect((await make({ reference: "first" })).reference).toBe("first");
    // Any number of records have none.
    expect((await make({ reference: null })).reference).toBeNull();
  });
});

test("PUT /users/:id keeps the reference when it is omitted, and clears it with null; DELETE frees it", async () => {
  const user = await newUser(server, { name: "Ann", reference: "K-1" });
  const put = async (fields: object) => {
    const body = { email: user.email, ...fields };
    return (await server.call("PUT", `/users/${user.id}`, { body })).json.data;
  };
  expect(await put({})).toMatchObject({ name: null, reference: "K-1", version: 2 });
  expect(await put({})).toMatchObject({ reference: "K-1", version: 2 });
  expect(await put({ reference: null })).toMatchObject({ reference: null, version: 3 });
  expect(await put({ reference: "K-2" })).toMatchObject({ reference: "K-2", version: 4 });
  const deleted = await server.call("DELETE", `/users/${user.id}`);
  expect(deleted.json.data.reference).toBe("K-2");
  expect((await newUser(server, { reference: "K-2" })).reference).toBe("K-2");
});

test.each(["/users", "/orders"])(
  "GET %s?id has the records that exist, with their total, and links with the ids as they were sent",
  async (path) => {
    const records: TestResponse["json"][] = [];
    for (let n = 0; n < 4; n += 1)
      records.push(await (path === "/users" ? newUser(server) : newOrder(server, buyer.id)));
    const [a, b, c, d] = records.map(({ id }) => id);
    const [first, second, third] = records;
    const beyond = "9007199254740993,9223372036854775808";
    const ids = `${c},${a},${beyond},${b}`;
    const get = (query: string) => server.call("GET", `${path}?${query}`);
    const all = await get(`id=${ids}`);
    expect(all.json.data).toEqual([first, second, third]);
    expect(all.json.meta).toEqual({ total: 3, limit: 100, offset: 0 });
    const spelled = [encodeURIComponent(ids), `${c}&id=${a},${beyond}&id[]=${b}`];
    for (const same of [...spelled, `${c},${a}&id%5B%5D=${beyond}&id%5B%5D=${b}`]) {
      expect((await get(`id=${same}`)).text).toBe(all.text);
      expect(links(await get(`id=${same}`))).toEqual(links(all));
    }
    expect((await get(`id=${beyond}`)).json.meta).toEqual({ total: 0, limit: 100, offset: 0 });
    const hundred = Array.from({ length: 99 }, (_, at) => 1_000_000 + at);
    expect((await get(`id=${d},${hundred}`)).json.meta.total).toBe(1);
    const page = await get(`id=${c},${a},${b}&limit=1&offset=1&sort=-id`);
    expect(page.json).toMatchObject({ data: [second], meta: { total: 3, limit: 1, offset: 1 } });
    const at = (offset: number) => `${path}?limit=1&offset=${offset}&id=${c},${a},${b}&sort=-id`;
    expect(links(page)).toEqual({ first: at(0), prev: at(0), next: at(2), last: at(2) });
    const start = await get(`after=${a}&id=${c},${a},${b}&limit=1`);
    expect(start.json).toMatchObject({ data: [second], meta: { total: 3 } });
    const { next } = links(start);
    expect(next).toBe(`${path}?limit=1&after=${b}&id=${c},${a},${b}`);
    expect((await server.call("GET", next ?? "")).json.data).toEqual([third]);
    const other = await newUser(server);
    const marked = path === "/users" ? other : await newOrder(server, other.id);
    const filter =
      path === "/users" ? `email=${other.email}` : `user_id=${other.id}&status=pending`;
    const { data, meta } = (await get(`id=${a},${marked.id}&${filter}`)).json;
    expect([data, meta.total]).toEqual([[marked], 1]);
    expect((await get(`id=${a}&${filter}`)).json.meta.total).toBe(0);
    expect(links(all)["first"]).toStartWith(`${path}?limit=100&offset=0&id=${c},${a},`);
  },
);
