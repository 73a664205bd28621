import { expect, test } from "bun:test";
import type { OrderImport, UserImport } from "../../src/domain/import-rules.ts";
import { patchOrder } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { listed } from "../support/listed.ts";
import { all, newUser, type Open, openWithClock, orderFields, parsed } from "./open.ts";

const update = { update: true };
const outcomes = (results: readonly { readonly outcome: string }[]) =>
  results.map(({ outcome }) => outcome);

async function updateUsers(store: Store, ...users: UserImport[]) {
  const told = await store.bulk.users.import(users, { ...update, dryRun: true });
  const results = await store.bulk.users.import(users, update);
  expect(told).toEqual(results);
  return results;
}

async function updateOrders(store: Store, ...orders: OrderImport[]) {
  const told = await store.bulk.orders.import(orders, { ...update, dryRun: true });
  const results = await store.bulk.orders.import(orders, update);
  expect(told).toEqual(results);
  return results;
}

export function importUpdatesContract(open: Open): void {
  test("an updating import changes a user that it recognizes by id, reference or email", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const ann = await newUser(store, { email: "ann@b.cd", reference: "1", metadata: { a: "1" } });
    const bob = await newUser(store, { email: "bob@b.cd", name: "Bob" });
    it.pass(1000);
    const users: UserImport[] = [
      { email: "ann.new@b.cd", reference: "1", name: "Ann" },
      { email: "BOB@b.cd", reference: "2" },
      { email: "cy@b.cd", reference: "3" },
    ];
    expect(outcomes(await updateUsers(store, ...users))).toEqual(["updated", "updated", "created"]);
    const now = it.clock.time.toISOString();
    const after = { version: 2, updated_at: now };
    expect((await listed(store.users.list({ ...all, id: [1, 2] }))).rows).toEqual([
      { ...ann, ...users[0], ...after },
      { ...bob, ...users[1], ...after },
    ]);
    expect(outcomes(await updateUsers(store, ...users))).toEqual(users.map(() => "unchanged"));
    const exported = { ...ann, name: "Anna", version: 9, created_at: now, updated_at: now };
    expect(outcomes(await updateUsers(store, exported))).toEqual(["updated"]);
    const { version, created_at, name } = parsed(await store.users.get(1)) ?? {};
    expect([version, created_at, name]).toEqual([3, ann.created_at, "Anna"]);
    expect(await store.check()).toEqual([]);
    const { records } = await store.changes.list({ limit: 100, offset: 0, after: 2 });
    const changes = JSON.parse(`[${records}]`);
    expect(changes.map(({ type, record_id }: any) => `${type} ${record_id}`)).toEqual(
      expect.arrayContaining(["user.updated 1", "user.updated 2", "user.created 3"]),
    );
    expect(changes).toHaveLength(4);
  });

  test("an updating import rejects a user when its email or reference is that of another one", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    await newUser(store, { email: "ann@b.cd", reference: "1" });
    await newUser(store, { email: "bob@b.cd", reference: "2" });
    const users: UserImport[] = [
      { email: "bob@b.cd", reference: "1" },
      // Two people of another system can share an email.
      { email: "bob@b.cd", reference: "3" },
    ];
    expect(await updateUsers(store, ...users)).toEqual(
      users.map(() => ({ outcome: "rejected", reason: "email is already taken by user 2" })),
    );
  });

  test("an updating import lets users exchange their emails in one batch", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    await newUser(store, { email: "ann@b.cd", reference: "1" });
    await newUser(store, { email: "bob@b.cd", reference: "2" });
    const users = [
      { email: "ann@b.cd", reference: "1", name: "Ann" },
      { email: "other@b.cd", reference: "2" },
      { email: "bob@b.cd", reference: "1" },
      { email: "ann@b.cd", reference: "2" },
      { email: "other@b.cd", reference: "3" },
    ];
    expect(outcomes(await store.bulk.users.import(users, update))).toEqual(
      "updated updated updated updated created".split(" "),
    );
    const { rows } = await listed(store.users.list(all));
    expect(rows.map(({ email, version }) => [email, version])).toEqual([
      ["bob@b.cd", 2],
      ["ann@b.cd", 2],
      ["other@b.cd", 1],
    ]);
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
    expect(outcomes(await updateOrders(store, order, changed))).toEqual(["unchanged", "updated"]);
    expect(outcomes(await updateOrders(store, changed))).toEqual(["unchanged"]);
    const stored = parsed(await store.orders.get(1));
    const expected = { user_id: bob.id, status: "shipped", refunded: 60, version: 2 };
    expect(stored).toMatchObject(expected);
    const reasons: Record<string, OrderImport> = {
      "cannot change status from shipped to paid; allowed: delivered": {
        ...changed,
        status: "paid",
      },
      "refunded must be from 60, which is refunded already, to 100, the total": {
        ...changed,
        refunded: 59,
      },
      "currency must be as in order 1: it never changes": { ...changed, currency: "USD" },
      "user_reference must be the reference of an existing user": {
        ...changed,
        user_reference: "C",
      },
    };
    const results = await updateOrders(store, ...Object.values(reasons));
    expect(results).toEqual(
      Object.keys(reasons).map((reason) => ({ outcome: "rejected", reason })),
    );
    // Without `update`, what can change is not compared.
    expect(outcomes(await store.bulk.orders.import([order]))).toEqual(["unchanged"]);
    await store.orders.update(1, (known) => patchOrder(known, { metadata: { a: "b" } }), null);
    expect(outcomes(await updateOrders(store, changed))).toEqual(["unchanged"]);
    expect((await store.orders.list({ ...all, user_id: ann.id })).total).toBe(0);
    expect((await store.orders.list({ ...all, status: "shipped" })).total).toBe(1);
    expect(await store.check()).toEqual([]);
  });
}
