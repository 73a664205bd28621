import { expect, test } from "bun:test";
import type { BulkStore } from "../../src/domain/bulk.ts";
import type { OrderImport, UserImport } from "../../src/domain/import-rules.ts";
import { type Order, patchOrder } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import type { User } from "../../src/domain/user.ts";
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

  test("an updating import lets records exchange their keys in one batch", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const user = (reference: string, email: string) => ({ reference, email: `${email}@b.cd` });
    for (const name of ["1", "2", "3", "4", "5", "6"]) await newUser(store, user(name, name));
    const users = [
      // Two exchange theirs, three do in a circle, and a new one gets what another gives up later.
      ...[user("1", "2"), user("2", "1"), user("3", "4"), user("4", "5"), user("5", "3")],
      ...[user("7", "6"), user("6", "new")],
    ];
    const changed = "updated updated updated updated updated created updated".split(" ");
    expect(outcomes(await updateUsers(store, ...users))).toEqual(changed);
    const same = users.map(() => "unchanged");
    expect(outcomes(await updateUsers(store, ...users))).toEqual(same);
    const { rows } = await listed(store.users.list(all));
    const versions = (row: (typeof rows)[0]) => [row.reference, row.email, row.version];
    expect(rows.map(versions)).toEqual([
      ...[users[0], users[1], users[2], users[3], users[4], users[6]].map((one) => [
        ...[one?.reference, one?.email, 2],
      ]),
      ["7", "6@b.cd", 1],
    ] as never);
    const [ann, bob] = rows as [User, User];
    const exchanged = [
      { ...ann, reference: bob.reference, email: bob.email },
      { ...bob, reference: ann.reference, email: ann.email },
    ];
    expect(outcomes(await updateUsers(store, ...exchanged))).toEqual(["updated", "updated"]);
    const orders: Order[] = [];
    for (const reference of ["1", "2", "3"])
      orders.push(parsed(await store.orders.create(orderFields(1, { reference }), null)));
    const turned = orders.map((one, at) => ({ ...one, reference: `${((at + 1) % 3) + 1}` }));
    expect(outcomes(await updateOrders(store, ...turned))).toEqual(turned.map(() => "updated"));
    expect(await store.check()).toEqual([]);
  });

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
