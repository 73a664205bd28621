import { expect, test } from "bun:test";
import type { BulkStore } from "../../src/domain/bulk.ts";
import type { OrderImport, UserImport } from "../../src/domain/import-rules.ts";
import { patchOrder } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { listed } from "../support/listed.ts";
import { all, newUser, type Open, openWithClock, orderFields, parsed } from "./open.ts";

const outcomes = (results: readonly { readonly outcome: string }[]) =>
  results.map(({ outcome }) => outcome);

/** Also makes a dry run, which must have the same results. */
async function update<Import>(bulk: BulkStore<Import>, records: readonly Import[]) {
  const told = await bulk.import(records, { update: true, dryRun: true });
  const results = await bulk.import(records, { update: true });
  expect(told).toEqual(results);
  return results;
}

const updateUsers = ({ bulk }: Store, ...users: UserImport[]) => update(bulk.users, users);
const updateOrders = ({ bulk }: Store, ...orders: OrderImport[]) => update(bulk.orders, orders);

export function importUpdatesContract(open: Open): void {
  test("an updating import rejects an exchange of keys when one of them is not given up", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const user = (reference: string, email: string) => ({ reference, email: `${email}@b.cd` });
    for (const name of ["1", "2", "3", "4"]) await newUser(store, user(name, name));
    const before = (await listed(store.users.list(all))).rows;
    const users = [
      // Two get one email, so a third one does not get what the first of them has.
      ...[user("1", "2"), user("2", "3"), user("4", "3"), user("3", "new")],
    ];
    const contested = "email is that of lines 2 and 3, which have different values";
    const taken = (id: number) => `email is already taken by user ${id}`;
    expect(await updateUsers(store, ...users.slice(0, 3))).toEqual([
      ...[taken(2), taken(3), taken(3)].map((reason) => ({ outcome: "rejected", reason })),
    ] as never);
    const results = await updateUsers(store, ...users.slice(0, 4));
    expect(results).toEqual([
      ...[taken(2), contested, contested].map((reason) => ({ outcome: "rejected", reason })),
      { outcome: "updated" },
    ] as never);
    expect((await listed(store.users.list(all))).rows.filter(({ id }) => id !== 3)).toEqual(
      before.filter(({ id }) => id !== 3),
    );
    expect(await store.check()).toEqual([]);
  });

  test("an updating import rejects records of one user, and a chain whose last email is taken", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const user = (email: string, reference: string | null) => ({
      email: `${email}@b.cd`,
      reference,
    });
    for (const [email, reference] of ["aB", "bC", "cD"])
      await newUser(store, user(email!, reference!));
    const users = [user("a", "C"), user("b", "B"), user("b", null), user("innocent", "Z")];
    const results = ["rejected", "rejected", "rejected", "created"];
    expect(outcomes(await updateUsers(store, ...users))).toEqual(results);
    const found = (await listed(store.users.list(all))).rows.map(({ email }) => email[0]);
    expect(found).toEqual(["a", "b", "c", "i"]);
    const chain = Array.from({ length: 3_000 }, (_, at) => user(`m${at}`, `R${at}`));
    await store.bulk.users.import(chain);
    const moved = chain.slice(1).map(({ email }, at) => ({ email, reference: `R${at}` }));
    expect(new Set(outcomes(await updateUsers(store, ...moved)))).toEqual(new Set(["rejected"]));
    expect(await store.check()).toEqual([]);
  });

  test("an updating import leaves an erased user as it is", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const erased = await newUser(store, { email: "1@erased.invalid", reference: "1" });
    const user = { email: "ann@b.cd", reference: "1", name: "Ann" };
    expect(outcomes(await updateUsers(store, user))).toEqual(["erased"]);
    expect((await listed(store.users.list(all))).rows).toEqual([erased]);
    await store.users.remove(erased.id, null);
    expect(outcomes(await updateUsers(store, user))).toEqual(["created"]);
  });

  test("an updating import leaves an order as it is when its user was erased", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const bob = await newUser(store, { email: "bob@b.cd" });
    const erased = await newUser(store, { email: "2@Erased.invalid", reference: "2" });
    const fields = orderFields(erased.id, { reference: "1" });
    const order = parsed(await store.orders.create(fields, null));
    const { user_id, ...record } = { ...fields, reference: "1", metadata: { phone: "1" } };
    const records: OrderImport[] = [
      { ...order, metadata: { phone: "1" } },
      { ...record, user_id },
      { ...record, user_reference: "2" },
      { ...record, user_email: "ann@b.cd" },
      { ...record, user_email: bob.email },
    ];
    for (const one of records) expect(outcomes(await updateOrders(store, one))).toEqual(["erased"]);
    expect(parsed(await store.orders.get(order.id))).toEqual(order);
    await store.users.update(erased.id, (user) => ({ ...user, email: "cy@b.cd" }), null);
    expect(outcomes(await updateOrders(store, { ...record, user_id }))).toEqual(["updated"]);
  });

  test("an updating import changes an order by allowed steps only", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const ann = await newUser(store, { reference: "A" });
    const bob = await newUser(store, { reference: "B", email: "bob@b.cd" });
    const { items, currency, total } = orderFields(ann.id);
    const order = { currency, items, total, reference: "1", user_reference: "A" };
    const changed = { ...order, user_reference: "B", status: "shipped", refunded: 60 } as const;
    expect(outcomes(await updateOrders(store, order))).toEqual(["created"]);
    expect(outcomes(await updateOrders(store, order))).toEqual(["unchanged"]);
    expect(outcomes(await updateOrders(store, changed))).toEqual(["updated"]);
    expect(outcomes(await updateOrders(store, changed))).toEqual(["unchanged"]);
    const stored = parsed(await store.orders.get(1));
    const expected = { user_id: bob.id, status: "shipped", refunded: 60, version: 2 };
    expect(stored).toMatchObject(expected);
    const never = "must be as in order 1: it never changes";
    for (const [field, value, problem] of [
      ["status", "paid", "cannot change status from shipped to paid; allowed: delivered"],
      ["refunded", 59, "refunded must be from 60, which is refunded already, to 100, the total"],
      ["currency", "USD", `currency ${never}`],
      ["created_at", "2020-01-02T03:04:05.678Z", `created_at ${never}`],
      ["user_reference", "C", "user_reference must be the reference of an existing user"],
    ] as const) {
      const results = await updateOrders(store, { ...changed, [field]: value });
      expect(results).toEqual([{ outcome: "rejected", reason: problem }]);
    }
    // Without `update`, what can change is not compared.
    expect(outcomes(await store.bulk.orders.import([order]))).toEqual(["unchanged"]);
    await store.orders.update(1, (known) => patchOrder(known, { metadata: { a: "b" } }), null);
    expect(outcomes(await updateOrders(store, changed))).toEqual(["unchanged"]);
    expect((await store.orders.list({ ...all, user_id: ann.id })).total).toBe(0);
    expect((await store.orders.list({ ...all, status: "shipped" })).total).toBe(1);
    expect(await store.check()).toEqual([]);
  });
}
