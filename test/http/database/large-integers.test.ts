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

test.each([
  ...edges.map((edge) => [edge, edge]),
  // Other spellings are in json.test.ts.
  ["-0", "0"],
])("unit_price and total stay exact when written %s", async (literal, shown) => {
  const text = await placed(orderText(userId, `1 × ${literal}`));
  expect(text).toContain(`"user_id":${userId},`);
  expect(text).toContain(`"quantity":1,"unit_price":${shown}}`);
  expect(text).toContain(`"total":${shown},`);
});

test("total is exact up to 2^53 − 1 when many items add up to it", async () => {
  for (const items of [
    ["999999 × 9007208261", "1 × 949252"],
    [`1 × ${largest}`, "1000000 × 0"],
    [`2 × ${largest}`, `1 × -${largest}`],
    [`1000000 × ${largest}`, `999999 × -${largest}`],
  ]) {
    expect(await placed(orderText(userId, ...items))).toContain(`"total":${largest}`);
  }
});

test("id and user_id stay exact when ids have reached 2^51 and 2^53 − 1", async () => {
  await using own = await startServer();
  await newOrder(own, (await newUser(own)).id);
  for (const edge of ["2251799813685249", largest]) {
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
