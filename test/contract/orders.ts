import { expect, test } from "bun:test";
import { AppError } from "../../src/error.ts";
import { type Order, type OrderStatus, patchOrder } from "../../src/order.ts";
import { expectRejection } from "../expect-error.ts";
import { listed } from "../listed.ts";
import { ifMatch } from "../preconditions.ts";
import { newUser, type Open, oddTexts, openWithClock, orderFields, parsed } from "./open.ts";

const all = { limit: 1000, offset: 0 };
const time = "2026-11-20T18:57:03.120Z";
const MAX = Number.MAX_SAFE_INTEGER;

const to = (status: OrderStatus) => (order: Order) => patchOrder(order, { status });

export function ordersContract(open: Open): void {
  test("orders.place returns the complete record", async () => {
    await using it = await openWithClock(open);
    const user = await newUser(it.store);
    const fields = orderFields(user.id, {
      items: [
        { sku: "A-1", name: "Ä", quantity: 2, unit_price: 50 },
        { sku: "B", quantity: 1, unit_price: 0 },
      ],
      metadata: { a: "1" },
    });
    const placed = await it.store.orders.place(fields, null);
    const { id } = placed.record;
    const order: Order = {
      id,
      ...fields,
      status: "pending",
      version: 1,
      created_at: time,
      updated_at: time,
    };
    expect(placed.replayed).toBe(false);
    expect(parsed(placed.record)).toEqual(order);
    expect(await it.store.orders.get(id)).toEqual(placed.record);
    expect((await it.store.orders.place(fields, null)).record.id).toBeGreaterThan(id);
  });

  for (const number of [1, 2 ** 31, 2 ** 51 - 1, 2 ** 51, 2 ** 51 + 1, 2 ** 53 - 2, MAX]) {
    test(`orders.place keeps an integer exact when it is ${number}`, async () => {
      await using it = await openWithClock(open);
      const { id } = await newUser(it.store);
      const items = [{ sku: "A-1", quantity: 1, unit_price: number }];
      const fields = orderFields(id, { items, total: number });
      const { record } = await it.store.orders.place(fields, null);
      expect(parsed(record)).toMatchObject({ total: number, items });
      expect(await it.store.orders.get(record.id)).toEqual(record);
      expect((await listed(it.store.orders.list(all))).rows).toEqual([parsed(record)]);
    });
  }

  test("orders.place stores text unchanged when it has special characters", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    for (const text of oddTexts) {
      const items = [{ sku: text, name: text, quantity: 1, unit_price: 100 }];
      const fields = orderFields(id, { items, metadata: { [text]: text } });
      const { record } = await it.store.orders.place(fields, null);
      expect(parsed(record)).toMatchObject(fields);
      expect(await it.store.orders.get(record.id)).toEqual(record);
    }
  });

  test("orders.place rejects the order when there is no such user", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    await it.store.users.remove(id, null);
    for (const userId of [id, id + 1, 2 ** 51 + 1, MAX]) {
      const error = await expectRejection(
        it.store.orders.place(orderFields(userId), null),
        "invalid",
        "Validation failed: user_id must be an existing user",
      );
      expect(error.problems).toEqual([{ field: "user_id", problem: "must be an existing user" }]);
    }
    expect(await listed(it.store.orders.list(all))).toEqual({ rows: [], total: 0 });
  });

  test("orders.place and a concurrent users.remove leave no order without a user", async () => {
    await using it = await openWithClock(open);
    for (const orderFirst of [true, false]) {
      const { id } = await newUser(it.store);
      const place = () => it.store.orders.place(orderFields(id), null);
      const remove = () => it.store.users.remove(id, null);
      const [one, other] = orderFirst ? [place, remove] : [remove, place];
      const results = await Promise.allSettled([one(), other()]);
      expect(results.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
      const { total } = await it.store.orders.list({ ...all, user_id: id });
      expect(total).toBe((await it.store.users.get(id)) === null ? 0 : 1);
    }
  });

  test("orders.get returns null when there is no such order", async () => {
    await using it = await openWithClock(open);
    for (const id of [0, 1, MAX]) expect(await it.store.orders.get(id)).toBeNull();
  });

  test("orders.list returns the page and the exact total when filtered", async () => {
    await using it = await openWithClock(open);
    const users = [await newUser(it.store), await newUser(it.store)];
    const placed: number[] = [];
    for (let count = 0; count < 6; count += 1) {
      it.pass(1000);
      const fields = orderFields(users[count % 2]?.id ?? 0);
      placed.push((await it.store.orders.place(fields, null)).record.id);
    }
    for (const number of [2, 1, 3]) {
      it.pass(1000);
      await it.store.orders.update(placed[number - 1] ?? 0, to("paid"), null);
    }
    const [anne = 0, bea = 0] = users.map(({ id }) => id);
    // With the number of each order, from 1: the databases assign different ids.
    const lists: [object, number[], number][] = [
      [{}, [1, 2, 3, 4, 5, 6], 6],
      [{ limit: 2, offset: 1 }, [2, 3], 6],
      [{ user_id: anne }, [1, 3, 5], 3],
      [{ user_id: bea, limit: 1, offset: 1 }, [4], 3],
      [{ status: "paid" }, [1, 2, 3], 3],
      [{ status: "pending", limit: 2 }, [4, 5], 3],
      [{ user_id: anne, status: "paid" }, [1, 3], 2],
      [{ user_id: anne, status: "paid", offset: 2 }, [], 2],
      [{ user_id: bea, status: "shipped" }, [], 0],
      [{ user_id: bea + 1 }, [], 0],
      [{ user_id: MAX, offset: MAX }, [], 0],
    ];
    for (const [query, ids, total] of lists) {
      const page = await listed(it.store.orders.list({ ...all, ...query }));
      const numbers = page.rows.map(({ id }) => placed.indexOf(id) + 1);
      expect([query, numbers, page.total]).toEqual([query, ids, total]);
      for (const order of page.rows) {
        expect(parsed(await it.store.orders.get(order.id))).toEqual(order);
      }
    }
  });

  test("orders.update stores the edited fields and the next version", async () => {
    await using it = await openWithClock(open);
    const { id: userId } = await newUser(it.store);
    const order = parsed((await it.store.orders.place(orderFields(userId), null)).record);
    const other = parsed((await it.store.orders.place(orderFields(userId), null)).record);
    it.pass(1000);
    const change = { status: "paid", metadata: { a: "1" } } as const;
    const seen: Order[] = [];
    const changed = await it.store.orders.update(
      order.id,
      (current) => {
        seen.push(current);
        return change;
      },
      null,
    );
    expect(seen).toEqual([order]);
    const updatedAt = "2026-11-20T18:57:04.120Z";
    const expected = { ...order, ...change, version: 2, updated_at: updatedAt };
    expect(parsed(changed)).toEqual(expected);
    expect((await listed(it.store.orders.list(all))).rows).toEqual([expected, other]);
  });

  test("orders.update does not move updated_at back when the clock goes back", async () => {
    await using it = await openWithClock(open);
    const { id: userId } = await newUser(it.store);
    const { record } = await it.store.orders.place(orderFields(userId), null);
    const { id } = record;
    it.pass(-60_000);
    const paid = await it.store.orders.update(id, to("paid"), null);
    expect(parsed(paid)).toMatchObject({ version: 2, created_at: time, updated_at: time });
    it.pass(120_000);
    const updatedAt = "2026-11-20T18:58:03.120Z";
    const shipped = await it.store.orders.update(id, to("shipped"), null);
    expect(parsed(shipped)).toMatchObject({ version: 3, updated_at: updatedAt });
    it.pass(-30_000);
    const delivered = await it.store.orders.update(id, to("delivered"), null);
    expect(parsed(delivered)).toMatchObject({ version: 4, updated_at: updatedAt });
    expect(parsed(await it.store.orders.get(id))).toMatchObject({
      created_at: time,
      updated_at: updatedAt,
    });
  });

  test("orders.update reserves memory for a large order, and changes nothing without it", async () => {
    await using it = await openWithClock(open);
    const { orders } = it.store;
    const { id: userId } = await newUser(it.store);
    const metadata = { text: "漢".repeat(5000) };
    const { record } = await orders.place(orderFields(userId, { metadata }), null);
    const reserved: number[] = [];
    const reserve = (bytes: number) => void reserved.push(bytes);
    const none = new AppError("unavailable", "no memory");
    const reject = () => {
      throw none;
    };
    await expect(orders.update(record.id, to("paid"), null, null, reject)).rejects.toBe(none);
    expect(await orders.get(record.id)).toEqual(record);
    const paid = parsed(await orders.update(record.id, to("paid"), null, null, reserve));
    expect(paid).toMatchObject({ metadata, status: "paid", version: 2 });
    expect(Math.min(...reserved)).toBeWithin(15_000, 16_000);
  });

  test("orders.update changes nothing when the edit throws or has no order", async () => {
    await using it = await openWithClock(open);
    const { id: userId } = await newUser(it.store);
    const { record } = await it.store.orders.place(orderFields(userId), null);
    it.pass(1000);
    await expectRejection(
      it.store.orders.update(record.id, to("delivered"), null),
      "invalid_status_change",
    );
    for (const versions of [[], [2], [Number.NaN]]) {
      await expectRejection(
        it.store.orders.update(record.id, to("paid"), ifMatch(...versions)),
        "version_mismatch",
      );
    }
    expect(await it.store.orders.update(record.id + 1, to("paid"), ifMatch(2))).toBeNull();
    expect(await it.store.orders.get(record.id)).toEqual(record);
    const paid = await it.store.orders.update(record.id, to("paid"), ifMatch(5, 1));
    expect(parsed(paid)).toMatchObject({ status: "paid", version: 2 });
  });

  test("orders.update applies a status change once when two calls make it concurrently", async () => {
    await using it = await openWithClock(open);
    const { id: userId } = await newUser(it.store);
    const { record } = await it.store.orders.place(orderFields(userId), null);
    const steps = (["paid", "paid", "canceled", "pending"] as const).map((status) =>
      it.store.orders.update(record.id, to(status), null),
    );
    const results = await Promise.allSettled(steps);
    const [paid, again, canceled, pending] = results.map(({ status }) => status === "fulfilled");
    expect([paid && again, canceled, pending]).toEqual([false, true, false]);
    const order = await it.store.orders.get(record.id);
    // In any order it is canceled last, and each change is one version.
    expect(parsed(order)).toMatchObject({ status: "canceled", version: paid || again ? 3 : 2 });
  });

  test("close waits for writes in progress", async () => {
    const { store } = await openWithClock(open);
    const { id } = await newUser(store);
    const writes = [1, 2, 3].map(() => store.orders.place(orderFields(id), null));
    await store.checkUsable();
    await store.close();
    const ids = (await Promise.all(writes)).map(({ record }) => record.id);
    expect(new Set(ids).size).toBe(3);
  });
}
