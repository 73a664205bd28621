// Writes: those of a batch share a statement, each has its own outcome, and other replicas write at the same time.
import { expect } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import type { UserStore } from "../../src/domain/user.ts";
import { sqlState } from "../../src/postgres/server/errors.ts";
import { newUser, orderFields, outcomesOf, rename, userFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { ifMatch } from "../support/preconditions.ts";
import { databaseOf, runOn } from "./instance.ts";
import {
  cluster,
  deleteUser,
  type Harness,
  patient,
  recordStatements,
  storedTime,
  test,
} from "./postgres-harness.ts";

const keyOf = (key: string | number) => ({ owner: "a", key: `${key}`, fingerprint: "f" });

/** Connections report what they have done when they are closed. */
async function statisticOf({ url }: Harness, name: "deadlocks" | "xact_rollback") {
  await cluster?.disconnect(url);
  const select = `select ${name}::integer as value from pg_stat_database where datname = '${databaseOf(url)}'`;
  return (await runOn<{ value: number }>(`${cluster?.url}`, select))[0]?.value;
}

/** @returns users of another replica, which does work before its first statement with this text */
function usersBefore(world: Harness, text: string, work: () => Promise<unknown>): UserStore {
  let isFirst = true;
  const { users } = recordStatements(world.connect(), (statement) => {
    if (!statement.includes(text) || !isFirst) return;
    isFirst = false;
    return work();
  });
  return users;
}

test("creates of one turn share a commit, and take no id when they fail", async (world) => {
  const store = await world.open();
  const { users } = store;
  const { id, email } = await newUser(store);
  world.commits.length = 0;
  const creates = [
    users.create(userFields(), null),
    users.create(userFields({ email: email.toUpperCase() }), null),
    users.create(userFields({ email }), keyOf("taken")),
    users.create(userFields(), keyOf("new")),
  ];
  expect(await outcomesOf(creates)).toEqual(["new", "email_taken", "email_taken", "new"]);
  expect((await creates[3])?.id).toBe(id + 2);
  // Two with one email have a batch each.
  expect(world.commits).toEqual([3, 1]);
  // Keys are claimed in one order: otherwise the creates of two replicas could deadlock.
  const keys = [{ ...keyOf("b"), owner: "b" }, keyOf("c"), keyOf("b"), keyOf("a")];
  await Promise.all(keys.map((key) => users.create(userFields(), key)));
  const claimed = "select key || owner as name from idempotency_keys where key < 'n' order by ctid";
  const names = (await world.run<{ name: string }>(claimed)).map(({ name }) => name);
  expect(names).toEqual(["aa", "ba", "bb", "ca"]);
  expect(await store.check()).toEqual([]);
});

test("creates return the record of another transaction when it claims their key meanwhile", async (world) => {
  const store = await world.open({ databaseUrl: world.url + patient });
  const other = await world.hold(`
    insert into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ('a', 'held', 'f', '{"id": 77}', '9999')
  `);
  const creates = [0, 1].map(() => store.users.create(userFields(), keyOf("held")));
  await world.untilWaiting();
  await other.commit();
  expect((await Promise.all(creates)).map(({ id }) => id)).toEqual([77, 77]);
  expect(await outcomesOf(creates)).toEqual(["replayed", "replayed"]);
  expect((await store.users.list({ limit: 1, offset: 0 })).total).toBe(0);
});

test("creates are tried once more, alone, when they fail with any other error, and an import stores nothing then", async (world) => {
  const store = await world.open();
  await world.run("alter table users add check (name <> 'no')");
  const error = await store.users
    .create(userFields({ name: "no" }), null)
    .catch((reason) => reason);
  expect(sqlState(error)).toBe("23514");
  expect(error).not.toBeInstanceOf(AppError);
  // Each attempt takes an id.
  const tried = await world.run("select last_value::integer as tries from users_id_seq");
  expect<unknown>(tried).toEqual([{ tries: 2 }]);
  const users = [userFields(), userFields({ name: "no" })];
  await expect(store.bulk.users.import(users)).rejects.toThrow();
  expect((await store.users.list({ limit: 1, offset: 0 })).total).toBe(0);
  await newUser(store);
  expect(await store.check()).toEqual([]);
});

test("updates of one turn share a transaction, and rejected writes leave no error on the server", async (world) => {
  const store = await world.open();
  const { users } = store;
  const made = await Promise.all(Array.from({ length: 7 }, () => newUser(store)));
  const ids = made.map(({ id }) => id);
  const [one = 0, two = 0, stale = 0, taker = 0, mover = 0, buyer = 0, gone = 0] = ids;
  await store.orders.create(orderFields(buyer), null);
  const move = (id: number, email: string) =>
    users.update(id, (user) => ({ ...user, email }), null);
  world.commits.length = 0;
  const done = [
    users.update(one, rename, null, keyOf("1")),
    users.update(two, (user) => user, null),
    users.update(999, rename, null),
    users.remove(gone, null),
    move(mover, "new@example.com"),
  ];
  const rejected = [
    [users.update(stale, rename, ifMatch(7)), "version_mismatch"],
    [users.remove(buyer, null), "user_has_orders"],
    [move(taker, made[0]?.email ?? ""), "email_taken"],
    [users.create(userFields({ email: made[0]?.email ?? "" }), null), "email_taken"],
    [store.orders.create(orderFields(999), null), "validation_failed"],
  ] as const;
  await Promise.all(rejected.map(([result, code]) => expectRejection(result, code)));
  const records = await Promise.all(done);
  expect(records.map((record) => record?.version)).toEqual([2, 1, undefined, 1, 2]);
  // A change of the email can wait for others, so it runs alone, and so do the two deletes.
  expect(world.commits.toSorted()).toEqual([1, 1, 1, 1, 6]);
  expect((await users.list({ limit: 1, offset: 0 })).total).toBe(made.length - 1);
  expect(await store.check()).toEqual([]);
  // One for the delete, and one for the email. After an error of the server, they would have been repeated.
  expect(await statisticOf(world, "xact_rollback")).toBe(2);
});

test("orders and the delete of their user are rejected when the other one of another transaction comes between", async (world) => {
  const store = await world.open({ databaseUrl: world.url + patient });
  const [stays, goes] = [await newUser(store), await newUser(store)];
  // They see the deletion only after its commit: the foreign key check waits for it.
  const deleted = await world.hold(deleteUser(goes.id));
  const creating = outcomesOf([store.orders.create(orderFields(goes.id), null)]);
  const orders = [stays, goes].map(({ id }, at) => ({ ...orderFields(id), reference: `${at}` }));
  const importing = store.bulk.orders.import(orders);
  await world.untilWaiting(2);
  await deleted.commit();
  expect(await creating).toEqual(["validation_failed"]);
  expect(await importing).toEqual([
    { outcome: "created" },
    { outcome: "rejected", reason: "user_id must be an existing user" },
  ]);
  expect(await store.check()).toEqual([]);
  const other = await newUser(store);
  const added = await world.hold(`
    insert into orders (
      id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
    )
    values (1000, ${other.id}, 'EUR', '[]', 0, 'paid', '{}', 1, ${storedTime}, ${storedTime})
  `);
  const rejected = expectRejection(store.users.remove(other.id, null), "user_has_orders");
  await world.untilWaiting();
  await added.commit();
  await rejected;
  expect((await store.users.get(other.id))?.version).toBe(1);
});

test("updates do not deadlock when they change the same records in another order", async (world) => {
  const open = () => world.open({ databaseUrl: world.url + patient });
  const stores = [await open(), await open()] as const;
  const made = await Promise.all(Array.from({ length: 32 }, () => newUser(stores[0])));
  const ids = made.map(({ id }) => id);
  const rounds = 6;
  await Promise.all(
    stores.map(async ({ users }, at) => {
      const order = at === 0 ? ids : ids.toReversed();
      for (let round = 0; round < rounds; round += 1)
        await Promise.all(order.map((id) => users.update(id, rename, null)));
    }),
  );
  const versions = await Promise.all(ids.map((id) => stores[0].users.get(id)));
  expect(new Set(versions.map((user) => user?.version))).toEqual(new Set([1 + 2 * rounds]));
  expect(await stores[1].check()).toEqual([]);
  expect(await statisticOf(world, "deadlocks")).toBe(0);
});

test("a write with a key follows a change that came before its read in the feed, and is replayed when another replica has made it", async (world) => {
  const store = await world.open();
  const { id } = await newUser(store);
  const rewrite = usersBefore(world, "from users", () => store.users.update(id, rename, null));
  expect((await rewrite.update(id, rename, null, keyOf("1")))?.version).toBe(3);
  expect(await store.check()).toEqual([]);
  const update = (users: UserStore) => users.update(id, rename, ifMatch(3), keyOf("2"));
  const remove = (users: UserStore) => users.remove(id, ifMatch(4), keyOf("3"));
  for (const write of [update, remove]) {
    const users = usersBefore(world, "from users", () => Promise.resolve(write(store.users)));
    expect(await write(users)).toMatchObject({ version: 4, replayed: true });
  }
  const other = await newUser(store);
  const keep = (users: UserStore) => users.update(other.id, (user) => user, null, keyOf("4"));
  const claim = "insert into idempotency_keys";
  const late = usersBefore(world, claim, () => Promise.resolve(keep(store.users)));
  expect(await keep(late)).toMatchObject({ version: 1, replayed: true });
});

for (const [when, text, isDone] of [
  ["after it was read", "for key share", true],
  ["before it is stored", "insert into idempotency_keys", false],
] as const)
  test(`a key of an update without changes keeps nothing of a user that another replica deletes ${when}`, async (world) => {
    const store = await world.open();
    const { id } = await newUser(store);
    let removal: Promise<unknown> | undefined;
    const users = usersBefore(world, text, () => {
      removal = Promise.resolve(store.users.remove(id, null));
      return isDone ? removal : world.untilWaiting();
    });
    await users.update(id, (user) => user, null, keyOf("1"));
    await removal;
    expect(await store.users.get(id)).toBeNull();
    expect(await world.run("select record from idempotency_keys")).toEqual([]);
  });

test("an update is rejected when another user gets its email after it was found free", async (world) => {
  const store = await world.open();
  const { id } = await newUser(store);
  const email = "new@example.com";
  const users = usersBefore(world, "update users", () => newUser(store, { email }));
  const update = users.update(id, (user) => ({ ...user, email }), null);
  await expectRejection(update, "email_taken");
  expect((await store.users.get(id))?.version).toBe(1);
});
