import { describe, expect, test } from "bun:test";
import { type DemoCounts, demoOrder, demoUser } from "../../src/cli/demo-data.ts";
import { createOrderParser, createUserParser } from "../../src/domain/import-rules.ts";
import { orderStatuses } from "../../src/domain/order.ts";
import { createdNotice, exportOf, failed, makeHarness, reported } from "./harness.ts";

const counts = { users: 1000, orders: 5000 };
const demoUsers = (of: DemoCounts) =>
  Array.from({ length: of.users }, (_, index) => demoUser(1 + index, of));
const demoOrders = (of: DemoCounts) =>
  Array.from({ length: of.orders }, (_, index) => demoOrder(1 + index, of));
const users = demoUsers(counts);
const orders = demoOrders(counts);

describe("demo data", () => {
  test("users and orders are valid", () => {
    const parseUser = createUserParser();
    const parseOrder = createOrderParser();
    for (const user of users) expect(parseUser(user)).toEqual(user);
    // This also checks the totals.
    for (const order of orders) expect(parseOrder(order)).toEqual(order);
  });

  test("orders have all statuses, and a version that fits the status", () => {
    const versions = { pending: 1, paid: 2, shipped: 3, delivered: 4, canceled: 3 };
    const found = new Map(orders.map(({ status, version }) => [status, version]));
    expect(Object.fromEntries(found)).toEqual(versions);
    for (const status of orderStatuses) {
      expect(orders.filter((order) => order.status === status).length).toBeGreaterThan(200);
    }
    for (const { status, version } of orders) expect(version).toBe(versions[status]);
  });

  test("orders are refunded when they are canceled, and have references of their own", () => {
    for (const { status, total, refunded } of orders)
      expect(refunded).toBe(status === "canceled" ? total : 0);
    for (const records of [users, orders]) {
      const references = records.map(({ reference }) => reference);
      expect(new Set(references).size).toBe(records.length);
      expect(references).not.toContain(null);
    }
  });

  test("every order belongs to a user who existed when it was placed", () => {
    for (const { user_id, created_at, updated_at } of orders) {
      expect(users[user_id - 1]!.created_at <= created_at).toBe(true);
      expect(created_at <= updated_at).toBe(true);
    }
  });
});

describe("seed", () => {
  test("fills a new database with consistent records", async () => {
    using world = makeHarness();
    expect(await world.run("seed")).toEqual(
      reported(createdNotice(world.path), "Created 100 users and 500 orders"),
    );
    expect((await world.run("check")).stdout).toBe("ok\n");
    expect(await exportOf(world, "orders")).toEqual(demoOrders({ users: 100, orders: 500 }));
  });

  test("stores as many records as the flags say, and can store only users", async () => {
    using world = makeHarness();
    expect(await world.run("seed", "--users", "5001", "--orders", "0")).toEqual(
      reported(createdNotice(world.path), "Created 5,001 users and 0 orders"),
    );
    expect((await world.run("export", "users")).stderr).toBe("Exported 5,001 users\n");
  });

  test("changes nothing and exits with 1 when the database is not empty", async () => {
    using world = makeHarness();
    await world.run("seed", "--users", "1", "--orders", "1");
    expect(await world.run("seed")).toEqual(failed(`Cannot seed ${world.path}: it is not empty`));
    expect((await world.run("export", "users")).stderr).toBe("Exported 1 user\n");
  });

  test("exits with 2 when a number is not allowed", async () => {
    using world = makeHarness();
    for (const [flag, value, least] of [
      ["--users", "0", 1],
      ["--users", "1e3", 1],
      ["--orders", "10000001", 0],
    ] as const) {
      const { code, stderr } = await world.run("seed", `${flag}=${value}`);
      const rule = `must be an integer from ${least} to 10,000,000`;
      expect([code, stderr.split("\n")[0]]).toEqual([2, `Invalid ${flag} "${value}": ${rule}`]);
    }
  });
});
