// Totals are exact while their changes are folded, and reading them costs the same while a snapshot is open.
import { describe, expect, test } from "bun:test";
import { SQL } from "bun";
import { type OrderStatus, orderStatuses } from "../../src/order.ts";
import { connect, type Database } from "../../src/postgres/connection.ts";
import { FOLD_LOCK, foldCounts, sumOfCounts } from "../../src/postgres/counts.ts";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields, setFields } from "../contract/open.ts";
import { withStore } from "../open-store.ts";
import { makeRandom } from "../random.ts";
import { findPrograms, makeInstance } from "./instance.ts";
import {
  cluster,
  countPages,
  type Harness,
  makeHarness,
  storedTime,
  waitingBackends,
} from "./postgres-harness.ts";

/** Keeps every store from folding, so that only the test does. */
const keepLock = `select pg_advisory_xact_lock(${FOLD_LOCK})`;
const firstPage = { limit: 1, offset: 0 };

async function totalOf(world: Harness, list: "users" | OrderStatus): Promise<number> {
  const [row] = await world.run<{ records: string }>(sumOfCounts(list));
  return Number(row?.records);
}

async function countRows(world: Harness): Promise<number> {
  const [row] = await world.run<{ rows: number }>("select count(*)::integer as rows from counts");
  return row?.rows ?? 0;
}

/** Inserts users, each in a transaction of its own. */
function insertUsers(from: number, to: number): string {
  return `
    do $$
    begin
      for id in ${from} .. ${to} loop
        insert into users (email, email_key, metadata, version, created_at, updated_at)
        values ('a@b', id, '{}', 1, ${storedTime}, ${storedTime});
        commit;
      end loop;
    end
    $$
  `;
}

const insertUser = `
  insert into users (email, email_key, metadata, version, created_at, updated_at)
  values ('a@b', 'held', '{}', 1, ${storedTime}, ${storedTime})
`;

/** Folds until nothing is left. */
async function foldAll(db: Database): Promise<void> {
  while ((await foldCounts(db)) > 0);
}

/** Reads each total and counts its rows, in one snapshot. */
const totalsAndRows = `
  select (${sumOfCounts("users")})::integer as users, (select count(*)::integer from users) as user_rows,
    ${orderStatuses
      .map(
        (status) => `
          (${sumOfCounts(status)})::integer as ${status},
          (select count(*)::integer from orders where status = '${status}') as ${status}_rows
        `,
      )
      .join(", ")}
`;

function expectExact(row: Record<string, number> | undefined): void {
  const totals = ["users", ...orderStatuses].map((list) => [list, row?.[list]]);
  const rows = ["users", ...orderStatuses].map((list) => [
    list,
    row?.[list === "users" ? "user_rows" : `${list}_rows`],
  ]);
  expect(totals).toEqual(rows);
}

describe.if(cluster !== null)("totals", () => {
  test("equal the rows in every snapshot when two processes fold beside random writes", async () => {
    await using world = await makeHarness();
    const stores = [await world.open(), await world.open()] as const;
    const databases = [world.connect(), world.connect()] as const;
    const random = makeRandom(1);
    let isDone = false;
    const folding = databases.map(async (db, at) => {
      while (!isDone) await foldCounts(db, at === 0 ? 3 : 50);
    });
    const reading = (async () => {
      while (!isDone) expectExact((await world.run<Record<string, number>>(totalsAndRows))[0]);
    })();
    const write = async (store: Store) => {
      const { id } = await newUser(store);
      const { record } = await store.orders.place(orderFields(id), null);
      const status = random(2) === 0 ? "paid" : "canceled";
      await store.orders.update(record.id, setFields({ status }), null);
      const gone = await newUser(store);
      if (random(2) === 0) await store.users.remove(gone.id, null);
      // Fails, and so changes no total.
      await store.orders.place(orderFields(9_999_999), null).catch(() => {});
    };
    const writing = Array.from({ length: 8 }, async (_, at) => {
      for (let round = 0; round < 10; round += 1) await write(stores[at % 2] ?? stores[0]);
    });
    await Promise.all(writing);
    isDone = true;
    await Promise.all([...folding, reading]);
    // A store may be folding as well, and then nothing is folded here.
    while ((await countRows(world)) > 1) await foldCounts(databases[0]);
    expectExact((await world.run<Record<string, number>>(totalsAndRows))[0]);
    expect(await stores[0].check()).toEqual([]);
    expect((await stores[1].orders.list(firstPage)).total).toBe(80);
  }, 30_000);

  test("include a transaction that was running during several folds when it commits", async () => {
    await using world = await makeHarness();
    // Without a store, which folds on its own.
    const db = world.connect();
    await using held = await world.hold(insertUser);
    for (const id of [1, 3]) {
      await world.run(insertUsers(id, id + 1));
      await foldAll(db);
    }
    expect(await totalOf(world, "users")).toBe(4);
    await held.commit();
    expect(await totalOf(world, "users")).toBe(5);
    await world.run(insertUsers(5, 5));
    await foldAll(db);
    expect(await totalOf(world, "users")).toBe(6);
    expect(await countRows(world)).toBe(1);
  });

  test("do not include a transaction that was running during a fold when it is rolled back", async () => {
    await using world = await makeHarness();
    const db = world.connect();
    const held = await world.hold(insertUser);
    await world.run(insertUsers(1, 2));
    await foldAll(db);
    await held[Symbol.asyncDispose]();
    await world.run(insertUsers(3, 3));
    await foldAll(db);
    expect(await totalOf(world, "users")).toBe(3);
  });

  test("stay exact when a fold is bounded, also within the rows of one transaction", async () => {
    await using world = await makeHarness();
    const db = world.connect();
    await world.run(insertUsers(1, 4));
    await using held = await world.hold("select txid_current()");
    await world.run(insertUsers(5, 8).replace("commit;", ""));
    await world.run(insertUsers(9, 12));
    for (let folds = 0; (await foldCounts(db, 3)) > 0; folds += 1) {
      expect([folds, await totalOf(world, "users")]).toEqual([folds, 12]);
      expect(folds).toBeLessThan(20);
    }
    await held.commit();
    expect(await totalOf(world, "users")).toBe(12);
    expect(await countRows(world)).toBe(1);
  });

  test("stay exact when the connection of a fold is killed", async () => {
    await using world = await makeHarness();
    const db = world.connect();
    await world.run(insertUsers(1, 5));
    const held = await world.hold("select from counts for update");
    const folding = foldCounts(db).then(
      () => "done",
      () => "failed",
    );
    await world.untilWaiting();
    await world.run(waitingBackends.replace("select pid", "select pg_terminate_backend(pid)"));
    expect(await folding).toBe("failed");
    await held.commit();
    expect(await totalOf(world, "users")).toBe(5);
    await foldAll(db);
    expect(await totalOf(world, "users")).toBe(5);
    expect(await countRows(world)).toBe(1);
  });

  test("are folded by one process at a time, and another one does not wait", async () => {
    await using world = await makeHarness();
    const db = world.connect();
    await world.run(insertUsers(1, 5));
    await using held = await world.hold(keepLock);
    expect(await foldCounts(db)).toBe(0);
    await held.commit();
    expect(await foldCounts(db)).toBe(6);
    expect(await foldCounts(db)).toBe(0);
  });

  test("are folded again by the store when it writes during a fold", async () => {
    await using world = await makeHarness();
    await world.run(insertUsers(1, 5));
    const store = await world.open();
    await using held = await world.hold("select from counts for update");
    await newUser(store);
    await world.untilWaiting();
    await newUser(store);
    await held.commit();
    while ((await countRows(world)) > 1) await Bun.sleep(5);
    expect((await store.users.list(firstPage)).total).toBe(7);
  });

  test("read no rows that were folded when a snapshot keeps them", async () => {
    await using world = await makeHarness();
    const db = world.connect();
    await using _snapshot = await world.hold(
      "set transaction isolation level repeatable read; select",
    );
    // A transaction that writes for long must not keep them in a total either.
    await using _writer = await world.hold("select txid_current()");
    await world.run(insertUsers(1, 3000));
    await foldAll(db);
    await world.run(insertUsers(3001, 3002));
    const pages = await countPages(db, sumOfCounts("users"));
    expect(pages).toBeGreaterThan(0);
    expect(pages).toBeLessThan(15);
  });

  test("have no row for a statement that does not change them", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const { id } = await newUser(store);
    const { record } = await store.orders.place(orderFields(id), null);
    await using held = await world.hold(keepLock);
    const before = await countRows(world);
    const metadata = { note: "changed" };
    await store.orders.update(record.id, setFields({ metadata }), null);
    await store.orders.place(orderFields(id + 1), null).catch(() => {});
    await world.run("delete from users where id = 0");
    await world.run("insert into users select * from users where id = 0");
    expect(await countRows(world)).toBe(before);
    await held.commit();
  });
});

const programs = findPrograms();

test.if(programs !== null)("totals are folded while the synchronous standby is lost", async () => {
  await using instance = await makeInstance(programs ?? "", { synchronous_standby_names: "lost" });
  await instance.start();
  await using sql = new SQL(`${instance.url}?synchronous_commit=off`, { max: 1 });
  await withStore(`${instance.url}?synchronous_commit=off`, async () => {});
  await sql.unsafe(insertUsers(1, 3));
  const db = connect({ databaseUrl: instance.url });
  expect(await foldCounts(db)).toBe(4);
  await db.close();
});
