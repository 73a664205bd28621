import { expect, test } from "bun:test";
import { setLastId } from "../backend.ts";
import { expectError, newOrder, newUser, orderText, send } from "../make.ts";
import { startServer } from "../server.ts";

test("ids and amounts stay exact from 2^51 to 2^53 − 1", async () => {
  await using own = await startServer();
  await newOrder(own, (await newUser(own)).id);
  // From 2^51, bun:sqlite may bind a number as REAL; 2^53 − 1 is the largest integer of the API.
  for (const edge of ["2251799813685249", "4503599627370497", "9007199254740991"]) {
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
      for (const field of ["id", "user_id", "unit_price", "total"])
        expect(text).toContain(`"${field}":${edge}`);
    }
    expect((await own.call("GET", `/users/${edge}`)).json.data).toEqual(user);
    expectError(await own.call("DELETE", `/users/${edge}`), 409, "user has orders");
    const patched = await own.call("PATCH", `/users/${edge}`, { body: { name: null } });
    expect(patched.json.data).toMatchObject({ id: user.id, name: null, version: 2 });
  }
});
