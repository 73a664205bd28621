// The totals of lists follow from the numbered changes and from those of the outbox.
import { describe, expect, test } from "bun:test";
import { type OrderStatus, orderStatuses } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { totalOf } from "../../src/postgres/tables/outbox.ts";
import { newUser, orderFields, rename, setFields, userFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { makeRandom } from "../support/random.ts";
import { cluster, type Harness, makeHarness, patient } from "./postgres-harness.ts";

const time = "2026-11-20T18:57:03.120Z";
const page = { limit: 1, offset: 0 };
const writers = [0, 1, 2, 3, 4, 5];
const ROUNDS = 12;

const totalsAndRows = `
  select
    array[(${totalOf("users")})::text, ${orderStatuses.map((status) => `(${totalOf(status)})::text`).join()}] as totals,
    array[
      (select count(*)::text from users),
      ${orderStatuses.map((status) => `(select count(*)::text from orders where status = '${status}')`).join()}
    ] as rows
`;

async function expectExact({ run }: Harness): Promise<void> {
  const [read] = await run<Record<"totals" | "rows", string[]>>(totalsAndRows);
  expect(read?.totals).toHaveLength(6);
  expect(read?.totals).toEqual(read?.rows ?? []);
}

/** Does one thing, and everything sooner or later. */
async function writeAny(store: Store, random: (below: number) => number): Promise<void> {
  const { users, orders, bulk } = store;
  const status = (): OrderStatus => orderStatuses[random(orderStatuses.length)] ?? "paid";
  const { id } = await newUser(store);
  const record = await orders.create(orderFields(id), null);
  for (let step = 0; step < 2; step += 1) {
    await orders.update(record.id, setFields({ status: status() }), null);
  }
  await users.update(id, rename, null);
  const imported = Array.from({ length: random(3) }, () => userFields());
  await bulk.users.import(imported);
  const times = { version: 1, created_at: time, updated_at: time };
  const order = {
    id: 1_000_000 + random(30),
    ...orderFields(id),
    status: status(),
    ...times,
  };
  await bulk.orders.import([order]);
  const gone = await newUser(store);
  if (random(2) === 0) await users.remove(gone.id, null);
  // These fail, and so change no total.
  await orders.create(orderFields(9_999_999), null).catch(() => {});
  await users.remove(id, null).catch(() => {});
}

describe.if(cluster !== null)("totals", () => {
  test("equal the rows in every snapshot when changes are numbered beside random writes", async () => {
    await using world = await makeHarness();
    const open = () => world.open({ databaseUrl: world.urlWith(`max=5${patient}`) });
    const stores = [await open(), await open()] as const;
    const random = makeRandom(1);
    let isDone = false;
    const untilDone = async (work: () => Promise<unknown>) => {
      while (!isDone) await work();
    };
    const beside = [
      untilDone(() => world.run(`select number_changes(${1 + random(9)})`)),
      untilDone(() => expectExact(world)),
    ];
    const writing = writers.map(async (at) => {
      for (let round = 0; round < ROUNDS; round += 1) {
        await writeAny(stores[at % 2] ?? stores[0], random);
      }
    });
    // The end of the writes, and of none before.
    await Promise.all(writing).finally(() => {
      isDone = true;
    });
    await Promise.all(beside);
    const [{ rows } = { rows: [] }] = await world.run<{ rows: string[] }>(totalsAndRows);
    const [store] = stores;
    const lists = [store.users.list(page)].concat(
      orderStatuses.map((status) => store.orders.list({ ...page, status })),
    );
    const totals = (await Promise.all(lists)).map(({ total }) => total);
    expect(totals).toEqual(rows.map(Number));
    expect(totals.every((total) => total > 0)).toBe(true);
    const { total } = await store.orders.list(page);
    expect(total).toBe(totals.slice(1).reduce((sum, each) => sum + each, 0));
    expect(await store.check()).toEqual([]);
  });

  test.each(["commit", "rollback"])(
    "are exact when a transaction that was open during several calls ends with %s",
    async (end) => {
      await using world = await makeHarness();
      const insert = (id: number) => `
        insert into users (id, email, email_key, metadata, version, created_at, updated_at)
        values (${id}, 'a@b', ${id}, '{}', 1, '${time}', '${time}');
        insert into change_outbox (type, record_id, version, created_at) values (1, ${id}, 1, 0)
      `;
      await using held = await world.hold(insert(1));
      for (const id of [2, 3, 4]) {
        await world.run(`begin; ${insert(id)}; commit`);
        await world.run("select number_changes(2)");
        await expectExact(world);
      }
      if (end === "commit") await held.commit();
      else await held[Symbol.asyncDispose]();
      await expectExact(world);
      await world.run("select number_changes(2)");
      await expectExact(world);
    },
  );

  test("are counted only when the whole of a dump is restored", async () => {
    await using it = await makeHarness();
    const store = await it.open();
    // As during a restore: the foreign keys come last.
    await it.run(
      "alter table orders drop constraint orders_user_id_fkey; update change_feed set xid = 0",
    );
    await expectRejection(
      Promise.resolve(store.changes.list({ limit: 1, offset: 0 })),
      "unavailable",
      "the database is currently unreachable",
    );
    await it.run(`
    insert into users values (7, 'a@b.cd', 'a@b.cd', null, null, '{}', 1, '${time}', '${time}');
    alter table orders add foreign key (user_id) references users
  `);
    await store.changes.list({ limit: 1, offset: 0 });
    expect((await store.users.list(page)).total).toBe(1);
  });
});
