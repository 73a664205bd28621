// Moves a shop in several times, with changes in the shop and here.
import { expect, test } from "bun:test";
import { formatCount } from "../../../src/base/count-text.ts";
import { type OrderPatch, patchOrder } from "../../../src/domain/order.ts";
import type { Store } from "../../../src/domain/store.ts";
import { patchUser, type UserPatch } from "../../../src/domain/user.ts";
import { withStore } from "../../support/open-store.ts";
import { type Harness, makeHarness, openWith } from "../harness.ts";
import {
  type Fields,
  failure,
  moveIn,
  ndjson,
  recordsOf,
  rulesFile,
  wooLine,
  wooOrder,
} from "./shops.ts";

/** @returns a move of these orders, with its differences and its last line */
function shopOf(world: Harness) {
  return async (orders: readonly Fields[], ...args: string[]) => {
    const files = { "orders.ndjson": ndjson(orders) };
    const { code, stdout, stderr } = await moveIn(world, "woocommerce", files, ...args);
    const isDifference = (line: string) => / here(?:;|$)/.test(line) && !/^currency/.test(line);
    return { code, differences: stdout.split("\n").filter(isDifference), stderr };
  };
}

async function editOrder({ path }: Harness, id: number, patch: OrderPatch): Promise<void> {
  await withStore(path, ({ orders }) =>
    orders.update(id, (order) => patchOrder(order, patch), null),
  );
}

async function editUser({ path }: Harness, id: number, patch: UserPatch): Promise<void> {
  await withStore(path, ({ users }) => users.update(id, (user) => patchUser(user, patch), null));
}

const agreed = (updated: number, unchanged: number, created = 0, erased = 0) => {
  const others = `${updated} updated, ${unchanged} unchanged, ${erased} erased, 0 rejected`;
  const stderr = expect.stringContaining(`Moved in ${formatCount(created, "order")} (${others}`);
  return { code: 0, differences: [], stderr };
};

const ring = { customer_note: "Ring" };
const chai = { line_items: [wooLine({ name: "Chai", sku: "c" })] };
const lines = [wooLine(), wooLine({ total: "5.00" })];
const two = { total: "15.00", line_items: lines };
const turned = { ...two, line_items: lines.toReversed() };
const completed = { status: "completed", refunds: [{ total: "-2.00" }] };
const later = { date_created_gmt: "2026-01-03T10:00:00" };
const shipped = { status: "shipped" } as const;
const [refunded, delivered] = [{ status: "refunded" }, { status: "delivered" }];
const refund = "1: 0.00 EUR refunded in the shop, 3.00 EUR refunded here";
const noNote = { metadata: expect.not.objectContaining(ring) };

/** A difference is text. What is changed here keeps the order from no other change. */
const changes: readonly (readonly [string, Fields, Fields, OrderPatch | null, Fields | string])[] =
  [
    ["a new name and SKU of its product", {}, chai, null, { items: [{ sku: "tea", name: "Tea" }] }],
    ["its lines in another order", two, turned, null, { total: 1500 }],
    ["another status and refund", {}, completed, null, { status: "delivered", refunded: 200 }],
    ["other amounts", {}, { total: "12.00" }, null, "1: 12.00 EUR in the shop, 10.00 EUR here"],
    ["another time", {}, later, null, ""],
    ["a status that is further here", {}, ring, shipped, "1: paid in the shop, shipped here"],
    ["a status that both have changed", {}, completed, shipped, { status: "delivered" }],
    ["a refund of what it has completed", { status: "completed" }, refunded, null, delivered],
    ["a refund here", {}, ring, { refunded: 300 }, refund],
    ["a cancellation here", {}, ring, { status: "canceled" }, "1: paid in the shop, canceled here"],
    ["metadata here", {}, ring, { metadata: { vip: "yes" } }, {}],
    ["a note that the shop no longer has", ring, {}, null, noNote],
  ];

test.each(changes)(
  "move-in brings an order again with %s",
  async (_, before, after, here, expected) => {
    using world = makeHarness();
    const run = shopOf(world);
    expect(await run([wooOrder(1, before)])).toEqual(agreed(0, 0, 1));
    if (here !== null) await editOrder(world, 1, here);
    const second = await run([wooOrder(1, after)]);
    const { orders } = await recordsOf(world);
    const isDifferent = typeof expected === "string";
    expect([second.code, second.differences.join()]).toEqual(isDifferent ? [1, expected] : [0, ""]);
    expect(second.stderr).toContain(isDifferent && here === null ? "1 rejected" : "0 rejected");
    expect(orders).toMatchObject([isDifferent ? {} : expected]);
    if (after === ring) expect(orders).toMatchObject([{ metadata: ring }]);
    if (here?.metadata) expect(orders[0]?.metadata).toMatchObject(here.metadata);
    const third = await run([wooOrder(1, after)]);
    expect([third.code, third.differences]).toEqual([second.code, second.differences]);
    expect((await recordsOf(world)).orders).toEqual(orders);
  },
);

const canceled = wooOrder(1, { status: "cancelled" });
const revived = wooOrder(1, { status: "processing" });

test("move-in makes a new order of one that was canceled and revived, of which only the new one counts", async () => {
  using world = makeHarness();
  const run = shopOf(world);
  await run([canceled]);
  await editOrder(world, 1, { metadata: { vip: "yes" } });
  expect(await run([revived])).toEqual(agreed(0, 0, 1));
  const { orders } = await recordsOf(world);
  const note = expect.stringContaining("the new order is 1");
  expect(orders).toMatchObject([
    { id: 1, reference: null, status: "canceled", metadata: { shop_note: note } },
    { id: 2, reference: "1", status: "paid", total: 1000, user_id: 1, metadata: { vip: "yes" } },
  ]);
  expect(await run([revived])).toEqual(agreed(0, 1));
  const would = expect.stringContaining("Would move in 0 orders (0 updated, 1 unchanged");
  expect(await run([revived], "--dry-run")).toMatchObject({ code: 0, stderr: would });
  expect((await recordsOf(world)).orders).toEqual(orders);
});

test("move-in stops at an order whose number has changed in the shop, until it has that number here", async () => {
  using world = makeHarness();
  const run = shopOf(world);
  await run([wooOrder(1)]);
  const renumbered = [wooOrder(1, { number: "WC-1" })];
  const numbers = failure("has the numbers 1, as order 1 here, and WC-1");
  expect(await run(renumbered)).toMatchObject(numbers);
  await editOrder(world, 1, { reference: "WC-1" });
  expect(await run(renumbered)).toEqual(agreed(0, 1));
});

test("move-in completes a run that ended between the old order and the new one", async () => {
  let left = Number.POSITIVE_INFINITY;
  const importOrders = (orders: Store["bulk"]["orders"]): typeof orders => ({
    import(...args) {
      left -= 1;
      if (left === 0) throw new Error("killed");
      return orders.import(...args);
    },
  });
  const openStore = openWith(({ bulk }) => ({
    bulk: { ...bulk, orders: importOrders(bulk.orders) },
  }));
  using world = makeHarness({ openStore });
  const run = shopOf(world);
  await run([canceled]);
  left = 2;
  expect((await run([revived])).code).toBe(1);
  expect((await recordsOf(world)).orders).toMatchObject([{ reference: null, status: "canceled" }]);
  expect(await run([revived])).toEqual(agreed(0, 0, 1));
  expect((await recordsOf(world)).orders).toMatchObject([{}, { reference: "1", status: "paid" }]);
});

const people = (shop: Partial<Record<number, Fields>> = {}) => [
  wooOrder(1, { customer_id: 5, email: "ann@a.example", ...shop[1] }),
  wooOrder(2, { email: "bob@b.example", ...shop[2] }),
  wooOrder(3, { email: "cid@c.example", ...shop[3] }),
];

test("move-in brings nobody back who was erased, and counts their orders apart", async () => {
  using world = makeHarness();
  const run = shopOf(world);
  await run(people());
  for (const id of ["1", "2"]) await world.run("person", "erase", id);
  const before = await recordsOf(world);
  const refund = { refunds: [{ total: "-1.00" }] };
  const changed = people({ 1: refund, 2: refund, 3: { status: "completed" } });
  expect(await run(changed)).toEqual(agreed(1, 0, 0, 2));
  const { users, orders } = await recordsOf(world);
  expect(users).toEqual(before.users);
  expect(orders.slice(0, 2)).toEqual(before.orders.slice(0, 2));
  // An account keeps its user, and who orders again as a guest is somebody new.
  const others = [7, 8, 9].map((id) => ({ ...changed[id === 7 ? 0 : 1], id, number: `${id}` }));
  const guest = { ...others[2], billing: { email: "ann@a.example" } };
  expect((await run([...changed, ...others.slice(0, 2), guest])).code).toBe(0);
  const after = await recordsOf(world);
  expect([after.owners["8"], after.owners["9"]]).toEqual(["bob@b.example", "ann@a.example"]);
  expect([after.users.length, after.owners["7"]]).toEqual([5, before.owners["1"]]);
});

test("move-in keeps users that were merged or got another email here", async () => {
  using world = makeHarness();
  const run = shopOf(world);
  await run(people());
  for (const order of [1, 2]) await editOrder(world, order, { user_id: 3 });
  await withStore(world.path, async ({ users }) => void (await users.remove(1, null)));
  await editUser(world, 2, { email: "robert@b.example" });
  await editUser(world, 3, { email: "new@c.example", metadata: { vip: "yes" } });
  const before = await recordsOf(world);
  const more = [
    wooOrder(4, { customer_id: 5, email: "ann@a.example" }),
    wooOrder(5, { email: "bob@b.example" }),
    wooOrder(6, { email: "CID@c.example" }),
  ];
  expect(await run([...people(), ...more])).toEqual(agreed(0, 3, 3));
  const { users, owners } = await recordsOf(world);
  expect(users).toEqual(before.users);
  expect(new Set(Object.values(owners))).toEqual(new Set(["new@c.example"]));
});

test("move-in follows a shop in which people change", async () => {
  using world = makeHarness();
  const run = shopOf(world);
  await run(people());
  // A new email of the account, an account for a guest, and a wrong email that was corrected.
  const changed = people({
    1: { email: "anna@a.example" },
    2: { customer_id: 6, email: "bob@b.example" },
    3: { email: "sid@c.example" },
  });
  // A guest now uses the old one.
  changed.push(wooOrder(4, { email: "ann@a.example" }));
  expect((await run(changed)).code).toBe(0);
  const { users, owners } = await recordsOf(world);
  const now = { 1: "anna@a.example", 2: "bob@b.example", 3: "sid@c.example", 4: "ann@a.example" };
  expect(owners).toEqual(now);
  const [accounts, guests] = [users.slice(0, 2), users.slice(2)];
  expect(accounts.map(({ reference, email }) => `${reference} ${email}`)).toEqual([
    ...["5 anna@a.example", "6 bob@b.example"],
  ]);
  expect(guests.map(({ reference }) => reference)).toEqual([null, null, null]);
  expect(guests.map(({ email }) => email.slice(0, 3))).toEqual(["cid", "sid", "ann"]);
  expect(await run(changed)).toEqual(agreed(0, 4));
  // Two accounts exchange their emails.
  const emails = { 1: "bob@b.example", 2: "anna@a.example" };
  const swapped = Object.values(emails).map((email, at) => ({
    ...changed[at],
    billing: { email },
  }));
  expect((await run(swapped)).code).toBe(0);
  expect((await recordsOf(world)).owners).toMatchObject(emails);
});

test("move-in gives a new account whose email another one keeps a user with another email", async () => {
  using world = makeHarness();
  const run = shopOf(world);
  const accounts = [5, 6].map((id) => wooOrder(id, { customer_id: id }));
  await run([...accounts, wooOrder(7)]);
  // 6 cannot have the email of a guest, since both have orders.
  const changed = wooOrder(6, { customer_id: 6, email: "guest7@people.example" });
  const added = wooOrder(8, { customer_id: 8, email: "guest6@people.example" });
  const all = [...accounts.slice(0, 1), changed, wooOrder(7), added];
  expect(await run(all)).toEqual(agreed(1, 2, 1));
  const owners = { 6: "guest6@people.example", 8: "customer-8@no-email.invalid" };
  expect((await recordsOf(world)).owners).toMatchObject(owners);
  expect(await run(all)).toEqual(agreed(0, 4));
});

test("move-in makes one user of those who are the same by the rules", async () => {
  using world = makeHarness();
  const run = shopOf(world);
  await run(people());
  const same = { "Bob@b.example": "5", "cid@c.example": "dan@d.example" };
  expect((await run(people(), "--rules", rulesFile(world, { same }))).code).toBe(0);
  const { owners, users } = await recordsOf(world);
  expect(owners).toEqual({ 1: "ann@a.example", 2: "ann@a.example", 3: "dan@d.example" });
  expect(users).toHaveLength(4);
  using other = makeHarness();
  await shopOf(other)(people(), "--rules", rulesFile(other, { same }));
  expect((await recordsOf(other)).owners).toEqual(owners);
});
