// Moves a shop in, changes records here and in the shop, and moves it in again, with the commands of docs/moving-in.md.
import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { type Order, type OrderPatch, patchOrder } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { patchUser, type User, type UserPatch } from "../../src/domain/user.ts";
import { shopifyCsv } from "../fixtures/shopify.ts";
import { cleanOrders, type WooOrder } from "../fixtures/woocommerce.ts";
import { makeDirectory } from "../support/directory.ts";
import { withStore } from "../support/open-store.ts";
import { commands, correct, exportOf, run } from "./moving-in.ts";
import { testIf } from "./on-binary.ts";

const COUNT = 60;
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
  return cleanOrders(COUNT).map((order, index) => {
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
  const others = changed.slice(people.length * 2).slice(0, COUNT / 10);
  const moved = changed.slice(people.indexOf("emailInShop") * 2).slice(0, 1);
  const email = newEmailOf("emailInShop");
  const again = moved.map((order) => ({ ...order, billing: { ...order.billing, email } }));
  const added = [...others, ...again].map((order, index) => {
    const id = 1_000_000 + index;
    return { ...order, id, number: `${id}` };
  });
  return [...changed, ...added];
}

async function changeHere(store: Store, isKnownByEmail: boolean): Promise<void> {
  const list = { limit: 10, offset: 0 };
  const userOf = async (person: Person): Promise<User> =>
    JSON.parse((await store.users.list({ ...list, email: emailOf(person) })).records);
  async function edit(person: Person, patch: UserPatch): Promise<void> {
    await store.users.update((await userOf(person)).id, (user) => patchUser(user, patch), null);
  }
  async function editOrders(person: Person, patch: OrderPatch): Promise<void> {
    const { id } = await userOf(person);
    const { records } = await store.orders.list({ ...list, user_id: id });
    for (const order of JSON.parse(`[${records}]`))
      await store.orders.update(order.id, (it) => patchOrder(it, patch), null);
  }
  await edit("emailHere", { email: newEmailOf("emailHere") });
  await edit("guest", { email: newEmailOf("guest") });
  if (isKnownByEmail) await edit("emailInShop", { email: newEmailOf("emailInShop") });
  await editOrders("erased", { metadata: null });
  const email = `${(await userOf("erased")).id}@erased.invalid`;
  await edit("erased", { email, name: null, metadata: null });
  await edit("metadata", { metadata: { vip: "yes" } });
  const [merged, stays] = [await userOf("merged"), await userOf("stays")];
  await editOrders("merged", { user_id: stays.id });
  await store.users.remove(merged.id, null);
  await editOrders("refunded", { status: "shipped", refunded: 50, metadata: { here: "yes" } });
}

const referenceOf = (person: Person) => `${1_000_001 + people.indexOf(person)}`;
const newEmails = (...changed: Person[]) =>
  Object.fromEntries(changed.map((person) => [emailOf(person), newEmailOf(person)]));
const ndjson = (orders: readonly WooOrder[]) =>
  orders.map((order) => `${JSON.stringify(order)}\n`).join("");

const shops = {
  WooCommerce: {
    isKnownByEmail: false,
    commands: [importUsers, importOrders, compare],
    /** Its name, and what it has for these orders. */
    file: ["woo-orders.ndjson", ndjson],
    /** The file of the rules, and what precedes the keys of the shop with those of the same person here. */
    rules: ["woo.jq", "def same: "],
    same: { ...newEmails("guest"), [referenceOf("merged")]: referenceOf("stays") },
  },
  Shopify: {
    isKnownByEmail: true,
    commands: [commands.shopify],
    file: ["orders_export_1.csv", shopifyCsv],
    rules: ["shopify.py", "SAME = "],
    same: {
      ...newEmails("emailHere", "emailInShop", "guest"),
      [emailOf("merged")]: emailOf("stays"),
    },
  },
} as const;

const isSkipped = Bun.which("jq") === null || Bun.which("python3") === null;
testIf(!isSkipped).each(Object.entries(shops))(
  "%s: a shop moves in twice with totals that agree, and no user or order is there twice or comes back",
  async (_, shop) => {
    using directory = makeDirectory();
    const [file, textOf] = shop.file;
    const save = (saved: WooOrder[]) => writeFileSync(directory.at(file), textOf(saved));
    const orders = makeOrders();
    save(orders);
    const first = await run(directory, copyRules, "set -e\n", ...shop.commands);
    const success = [0, expect.stringContaining("All totals agree\n")];
    expect([first.code, first.stdout]).toEqual(success);
    const earlier = await exportOf(directory, "users");

    await withStore(directory.at("shop.db"), (store) => changeHere(store, shop.isKnownByEmail));
    const changed = changeInShop(orders, shop.isKnownByEmail);
    save(changed);
    const [rules, before] = shop.rules;
    correct(directory.at(rules), `${before}{}`, before + JSON.stringify(shop.same));
    const second = await run(directory, "set -e\n", ...shop.commands);
    expect([second.code, second.stdout]).toEqual(success);

    const users: User[] = await exportOf(directory, "users");
    const exported = await exportOf(directory, "orders");
    const found = new Map<string, Order>(
      exported.map((one) => [one.reference.replace("#", ""), one]),
    );
    expect([...found.keys()].toSorted()).toEqual(changed.map(({ number }) => number).toSorted());
    const ordersOf = (person: Person) => {
      const given = orders.slice(people.indexOf(person) * 2).slice(0, 2);
      return given.flatMap(({ number }) => found.get(number) ?? []);
    };
    const emails = new Map(users.map(({ id, email }) => [id, email]));
    // Two were merged. An order without an email has its own user.
    const known = (all: User[]) => all.filter(({ email }) => !email.startsWith("guest-"));
    expect(known(users)).toHaveLength(known(earlier).length - 1);
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
);
