// Moves a shop in, changes records here and in the shop, and moves it in again, with the commands of docs/moving-in.md.
// MOVING_IN_ORDERS=50000 does so with another number of orders.
import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { type Order, patchOrder } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { patchUser, type User, type UserPatch } from "../../src/domain/user.ts";
import { shopifyCsv } from "../fixtures/shopify.ts";
import { cleanOrders, type WooOrder } from "../fixtures/woocommerce.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { withStore } from "../support/open-store.ts";
import { commands, correct, exportOf, run } from "./moving-in.ts";
import { testIf } from "./on-binary.ts";

const count = Number(Bun.env["MOVING_IN_ORDERS"] ?? 100);
const { copyRules, importUsers, importOrders, compare } = commands;

/** The people whom this test changes; each has two orders. */
const people = [
  ...["emailHere", "erased", "merged", "stays", "metadata", "completed", "refunded"],
  ...["emailInShop", "guest"],
] as const;
type Person = (typeof people)[number];
const emailOf = (person: Person) => `${person.toLowerCase()}@people.example`;
const newEmailOf = (person: Person) => `new-${emailOf(person)}`;

function makeOrders(): WooOrder[] {
  return cleanOrders(count).map((order, index) => {
    const at = Math.floor(index / 2);
    const person = people[at];
    if (person === undefined) return order;
    const paid = { ...order, currency: "EUR", total: "100.00", status: "processing", refunds: [] };
    return {
      ...paid,
      date_completed_gmt: null,
      customer_id: person === "guest" ? 0 : 1_000_001 + at,
      billing: { ...order.billing, email: emailOf(person) },
    };
  });
}

/** @returns the orders of the shop before the second import: a tenth more */
function changeInShop(orders: readonly WooOrder[], erase: boolean): WooOrder[] {
  const completed = { status: "completed", date_completed_gmt: "2026-01-01T10:00:00" };
  const refund = (total: string) => [{ id: 1, reason: "", total }];
  const changed = orders.map((order, index): WooOrder => {
    const person = people[Math.floor(index / 2)];
    const email = { billing: { ...order.billing, email: "" } };
    if (person === "erased" && erase) return { ...order, ...email };
    if (person === "completed") return { ...order, ...completed };
    if (person !== "refunded") return order;
    if (index % 2 === 0) return { ...order, ...completed, refunds: refund("-2.00") };
    return { ...order, ...completed, status: "refunded", refunds: refund("-100.00") };
  });
  const others = changed.slice(people.length * 2).slice(0, count / 10);
  const [mover] = changed.slice(people.indexOf("emailInShop") * 2);
  const moved = mover && [
    { ...mover, billing: { ...mover.billing, email: newEmailOf("emailInShop") } },
  ];
  const added = [...others, ...(moved ?? [])].map((order, index) => {
    const id = 1_000_000 + index;
    return { ...order, id, number: `${id}` };
  });
  return [...changed, ...added];
}

async function changeHere(store: Store, isKnownByEmail: boolean): Promise<void> {
  const list = { limit: 10, offset: 0 };
  const userOf = async (person: Person): Promise<User> => {
    const { records } = await store.users.list({ ...list, email: emailOf(person) });
    return JSON.parse(records);
  };
  const edit = async (person: Person, patch: UserPatch) =>
    await store.users.update((await userOf(person)).id, (user) => patchUser(user, patch), null);
  const ordersOf = async ({ id }: User): Promise<{ id: number }[]> =>
    JSON.parse(`[${(await store.orders.list({ ...list, user_id: id })).records}]`);

  await edit("emailHere", { email: newEmailOf("emailHere") });
  await edit("guest", { email: newEmailOf("guest") });
  if (isKnownByEmail) await edit("emailInShop", { email: newEmailOf("emailInShop") });
  const { id } = await userOf("erased");
  for (const order of await ordersOf(await userOf("erased")))
    await store.orders.update(order.id, (it) => patchOrder(it, { metadata: null }), null);
  await edit("erased", { email: `${id}@erased.invalid`, name: null, metadata: null });
  await edit("metadata", { metadata: { vip: "yes" } });
  const [merged, stays] = [await userOf("merged"), await userOf("stays")];
  for (const order of await ordersOf(merged))
    await store.orders.update(order.id, (it) => patchOrder(it, { user_id: stays.id }), null);
  await store.users.remove(merged.id, null);
  for (const order of await ordersOf(await userOf("refunded"))) {
    const patch = { status: "shipped", refunded: 50, metadata: { here: "yes" } } as const;
    await store.orders.update(order.id, (it) => patchOrder(it, patch), null);
  }
}

interface Shop {
  readonly isKnownByEmail: boolean;
  readonly commands: readonly string[];
  write(directory: TemporaryDirectory, orders: readonly WooOrder[]): void;
  /** Names those who are somebody else here in the rules. */
  editRules(directory: TemporaryDirectory): void;
}

const shops: Readonly<Record<string, Shop>> = {
  WooCommerce: {
    isKnownByEmail: false,
    commands: [importUsers, importOrders, compare],
    write(directory, orders) {
      const text = orders.map((order) => `${JSON.stringify(order)}\n`).join("");
      writeFileSync(directory.at("woo-orders.ndjson"), text);
    },
    editRules(directory) {
      const reference = (person: Person) => `${1_000_001 + people.indexOf(person)}`;
      const same = {
        [emailOf("guest")]: newEmailOf("guest"),
        [reference("merged")]: reference("stays"),
      };
      correct(directory.at("woo.jq"), "def same: {};", `def same: ${JSON.stringify(same)};`);
    },
  },
  Shopify: {
    isKnownByEmail: true,
    commands: [commands.shopify],
    write(directory, orders) {
      writeFileSync(directory.at("orders_export_1.csv"), shopifyCsv(orders));
    },
    editRules(directory) {
      const changed = ["emailHere", "emailInShop", "guest"] as const;
      const same = {
        ...Object.fromEntries(changed.map((person) => [emailOf(person), newEmailOf(person)])),
        [emailOf("merged")]: emailOf("stays"),
      };
      correct(directory.at("shopify.py"), "SAME = {}", `SAME = ${JSON.stringify(same)}`);
    },
  },
};

const isSkipped = Bun.which("jq") === null || Bun.which("python3") === null;
testIf(!isSkipped).each(Object.entries(shops))(
  "%s: a shop moves in twice with totals that agree, and no user or order is there twice or comes back",
  async (_, shop) => {
    using directory = makeDirectory();
    const orders = makeOrders();
    shop.write(directory, orders);
    const first = await run(directory, copyRules, "set -e\n", ...shop.commands);
    const success = [0, expect.stringContaining("All totals agree\n")];
    expect([first.code, first.stdout]).toEqual(success);
    const before = await exportOf(directory, "users");

    await withStore(directory.at("shop.db"), (store) => changeHere(store, shop.isKnownByEmail));
    const changed = changeInShop(orders, shop.isKnownByEmail);
    shop.write(directory, changed);
    shop.editRules(directory);
    const second = await run(directory, "set -e\n", ...shop.commands);
    expect([second.code, second.stdout]).toEqual(success);

    const users: User[] = await exportOf(directory, "users");
    const found = new Map<string, Order>();
    for (const order of await exportOf(directory, "orders"))
      found.set(order.reference.replace("#", ""), order);
    expect([...found.keys()].toSorted()).toEqual(changed.map(({ number }) => number).toSorted());
    const ordersOf = (person: Person) =>
      orders
        .slice(people.indexOf(person) * 2)
        .slice(0, 2)
        .flatMap(({ number }) => found.get(number) ?? []);
    const emails = new Map(users.map(({ id, email }) => [id, email]));
    // Two were merged. An order without an email has its own user.
    const known = (all: User[]) => all.filter(({ email }) => !email.startsWith("guest-"));
    expect(known(users)).toHaveLength(known(before).length - 1);
    const erased = users.filter(({ email }) => email.endsWith("@erased.invalid"));
    expect(erased.map(({ name, metadata }) => [name, metadata])).toEqual([[null, {}]]);
    const owners: Partial<Record<Person, string | undefined>> = {
      erased: erased[0]?.email,
      merged: emailOf("stays"),
      guest: newEmailOf("guest"),
      emailInShop: newEmailOf("emailInShop"),
      ...(shop.isKnownByEmail && { emailHere: newEmailOf("emailHere") }),
    };
    for (const person of people) {
      const owner = owners[person] ?? emailOf(person);
      const found = ordersOf(person).map(({ user_id }) => emails.get(user_id));
      expect([person, ...found]).toEqual([person, owner, owner]);
      expect(users.some(({ email }) => email === emailOf(person))).toBe(owner === emailOf(person));
    }
    expect(ordersOf("erased").map(({ metadata }) => metadata)).toEqual([{}, {}]);
    const vip = users.find(({ email }) => email === emailOf("metadata"));
    expect(vip?.metadata).toEqual({ vip: "yes" });
    const status = shop.isKnownByEmail ? "shipped" : "delivered";
    expect(ordersOf("completed")).toMatchObject([{ status }, { status }]);
    expect(ordersOf("refunded")).toMatchObject([
      { status, refunded: 200, total: 10_000 },
      { status, refunded: 10_000, total: 10_000 },
    ]);

    const third = await run(directory, "set -e\n", ...shop.commands);
    expect(third.stderr).toMatch(/Imported 0 users \(0 updated, .*, 0 rejected\)/);
    expect(third.stderr).toMatch(/Imported 0 orders \(0 updated, .*, 0 rejected\)/);
  },
  Math.max(180_000, count * 60),
);
