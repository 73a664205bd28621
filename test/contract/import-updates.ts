import { expect, test } from "bun:test";
import type { BulkStore, ImportResult } from "../../src/domain/bulk.ts";
import type { OrderImport, UserImport } from "../../src/domain/import-rules.ts";
import type { Store } from "../../src/domain/store.ts";
import { newUser, type Open, openWithClock, orderFields, parsed } from "./open.ts";

/** @returns the reasons of those that are rejected, and the outcomes of the others */
const told = (results: readonly ImportResult[]) =>
  results.map((result) => (result.outcome === "rejected" ? result.reason : result.outcome));

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
  test("an updating import rejects a long chain of exchanges whose last email is taken", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const users = Array.from({ length: 3_000 }, (_, at) => ({
      email: `m${at}@b.cd`,
      reference: `R${at}`,
    }));
    await store.bulk.users.import(users);
    const moved = users.slice(1).map(({ email }, at) => ({ email, reference: `R${at}` }));
    const results = await updateUsers(store, ...moved);
    expect(results.filter(({ outcome }) => outcome !== "rejected")).toEqual([]);
    expect(await store.check()).toEqual([]);
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
    for (const one of records) expect(told(await updateOrders(store, one))).toEqual(["erased"]);
    expect(parsed(await store.orders.get(order.id))).toEqual(order);
    await store.users.update(erased.id, (user) => ({ ...user, email: "cy@b.cd" }), null);
    expect(told(await updateOrders(store, { ...record, user_id }))).toEqual(["updated"]);
  });

  test("an updating import changes an order by allowed steps only", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    await newUser(store, { reference: "A" });
    const bob = await newUser(store, { reference: "B", email: "bob@b.cd" });
    const { items, currency, total } = orderFields(bob.id);
    const order = { currency, items, total, reference: "1", user_reference: "A" };
    const changed = { ...order, user_reference: "B", status: "shipped", refunded: 60 } as const;
    expect(told(await updateOrders(store, order))).toEqual(["created"]);
    expect(told(await updateOrders(store, changed))).toEqual(["updated"]);
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
      expect(told(results)).toEqual([problem]);
    }
    // Without `update`, what can change is not compared.
    expect(told(await store.bulk.orders.import([order]))).toEqual(["unchanged"]);
    expect(await store.check()).toEqual([]);
  });
}
