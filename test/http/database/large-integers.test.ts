import { expect, test } from "bun:test";
import { setLastId } from "../backend.ts";
import { expectError, newOrder, newUser, orderText, send } from "../make.ts";
import { startServer, startSharedServer } from "../server.ts";

const server = await startSharedServer();
const { id: userId } = await newUser(server);

/** From 2^51, bun:sqlite may bind a number as REAL; 2^53 − 1 is the largest integer of the API. */
const edges = [
  ...["2251799813685247", "2251799813685248", "2251799813685249"],
  ...["4503599627370497", "9007199254740990", "9007199254740991"],
];
const largest = "9007199254740991";
const one = [..."1 1.0 1e0 1E+0 1e-0 100e-2 0.1e1 1.000e00".split(" "), `1.${"0".repeat(400)}`];

/** Creates an order, which GET and the list must return with the same text. @returns the text */
async function placed(raw: string): Promise<string> {
  const response = await send(server, "POST", "/orders", raw);
  expect(response.status, response.text.slice(0, 500)).toBe(201);
  const got = await server.call("GET", `/orders/${response.json.data.id}`);
  expect(got.text).toBe(response.text);
  const { total } = (await server.call("GET", `/orders?user_id=${userId}&limit=1`)).json.meta;
  const list = await server.call("GET", `/orders?user_id=${userId}&limit=1&offset=${total - 1}`);
  expect(list.text).toContain(got.text.slice('{"data":'.length, got.text.lastIndexOf(',"error"')));
  return got.text;
}
for (const edge of edges) {
  test(`unit_price and total stay exact when they are ${edge}`, async () => {
    const text = await placed(orderText(userId, `1 × ${edge}`));
    expect(text).toContain(`"unit_price":${edge}`);
    expect(text).toContain(`"total":${edge}`);
  });
}

for (const literal of one) {
  test(`quantity, unit_price and user_id are exact when written ${literal.slice(0, 12)}`, async () => {
    const text = await placed(orderText(`${userId}.0`, `${literal} × ${literal}`));
    expect(text).toMatch(/"quantity":1[,}]/);
    expect(text).toMatch(/"unit_price":1[,}]/);
    expect(text).toMatch(/"total":1[,}]/);
    expect(text).toMatch(new RegExp(`"user_id":${userId}[,}]`));
  });
}

for (const [literal, shown] of [
  ["0", "0"],
  ["-0", "0"],
  ["-0.0", "0"],
  ["0e5", "0"],
  ["900719925474099.1e1", largest],
  ["90071992547409910e-1", largest],
  [`${largest}.000`, largest],
  ["1e15", "1000000000000000"],
  ["0.00e-99", "0"],
  ["1.50e+1", "15"],
  ["9.007199254740991e15", largest],
  ["2251799813685249e0", "2251799813685249"],
] as const) {
  test(`unit_price is ${shown} when written ${literal}`, async () => {
    const text = await placed(orderText(userId, `1 × ${literal}`));
    expect(text).toMatch(new RegExp(`"unit_price":${shown}[,}]`));
    expect(text).toMatch(new RegExp(`"total":${shown}[,}]`));
  });
}

test("quantity is exact when it is 1,000,000", async () => {
  expect(await placed(orderText(userId, "1000000 × 7"))).toContain('"total":7000000');
});

for (const edge of edges) {
  test(`user_id is rejected as unknown when it is ${edge}`, async () => {
    const nobody = /^Validation failed: user_id must be an existing user$/;
    expectError(await send(server, "POST", "/orders", orderText(edge, "1 × 1")), 400, nobody);
    const none = await server.call("GET", `/orders?user_id=${edge}`);
    expect(none.json).toEqual({ data: [], error: null, meta: { total: 0, limit: 50, offset: 0 } });
  });
}

test("total is exact up to 2^53 − 1 when many items add up to it", async () => {
  for (const items of [
    ["1 × 9007199254740990", "1 × 1"],
    ["3 × 3002399751580330", "1 × 1"],
    ["999999 × 9007208261", "1 × 949252"],
    [`1 × ${largest}`, "1000000 × 0"],
    [`2 × ${largest}`, `1 × -${largest}`],
    [`1000000 × ${largest}`, `999999 × -${largest}`],
  ]) {
    expect(await placed(orderText(userId, ...items))).toContain(`"total":${largest}`);
  }
});

test("text stays text when it looks like a number", async () => {
  const metadata = { n: "9007199254740993", "1e400": "1.00000000000000000001", z: "-0" };
  const items = [{ sku: "9007199254740993", name: "1.0", quantity: 1, unit_price: 1 }];
  const order = await newOrder(server, userId, { items, metadata });
  expect(order).toMatchObject({ items, metadata });
  expect((await server.call("GET", `/orders/${order.id}`)).json.data).toEqual(order);
});

test("id and user_id stay exact when ids have reached 2^51 and 2^53 − 1", async () => {
  await using own = await startServer();
  await newOrder(own, (await newUser(own)).id);
  for (const edge of edges) {
    await own.stop();
    for (const table of ["users", "orders"] as const) {
      await setLastId(own.database, table, BigInt(edge) - 1n);
    }
    await own.restart();
    const user = await newUser(own, { name: "at the edge" });
    expect(`${user.id}`).toBe(edge);
    const raw = orderText(edge, `1 × ${edge}`);
    const order = await send(own, "POST", "/orders", raw);
    expect(order.status, order.text).toBe(201);
    expect(order.headers.get("location")).toBe(`/api/v1/orders/${edge}`);
    for (const path of [`/orders/${edge}`, `/orders?user_id=${edge}`]) {
      const { text } = await own.call("GET", path);
      for (const part of [`"id":${edge}`, `"user_id":${edge}`, `"total":${edge}`]) {
        expect(text).toContain(part);
      }
    }
    expect((await own.call("GET", `/users/${edge}`)).json.data).toEqual(user);
    expectError(await own.call("DELETE", `/users/${edge}`), 409, "user has orders");
    const patched = await own.call("PATCH", `/users/${edge}`, { body: { name: null } });
    expect(patched.json.data).toMatchObject({ id: user.id, name: null, version: 2 });
  }
});
