/** Totals and pages against a model that walks the rows: whatever comes, goes and changes. */
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { type OrderStatus, order_statuses, patchOrder } from "../../src/order.ts";
import { openSqlite } from "../../src/sqlite/open.ts";
import { makeFolder } from "../folder.ts";

/** mulberry32: the same numbers for the same seed on every machine. */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}

async function openIn(path: string) {
  return openSqlite({
    database_url: path,
    max_pending_writes: 100_000,
    exclusive: true,
    create: true,
    now: () => new Date(),
  });
}

type Store = Awaited<ReturnType<typeof openIn>>;
interface Model {
  users: number[];
  orders: { id: number; user_id: number; status: OrderStatus }[];
}

async function expectPages(store: Store, model: Model, random: (below: number) => number) {
  const check = async (
    wanted: number[],
    list: (query: { limit: number; offset: number }) => Promise<{
      rows: readonly { id: number }[];
      total: number;
    }>,
  ) => {
    const edges = [0, wanted.length - 1, wanted.length, 63, 64, 65, 4095, 4096, random(5000)];
    for (const offset of edges.filter((edge) => edge >= 0)) {
      const limit = 1 + random(70);
      const { rows, total } = await list({ limit, offset });
      expect(total).toBe(wanted.length);
      expect(rows.map(({ id }) => id)).toEqual(wanted.slice(offset, offset + limit));
    }
  };
  const ids = (orders: Model["orders"]) => orders.map(({ id }) => id);
  await check(model.users, (query) => store.users.list(query));
  await check(ids(model.orders), (query) => store.orders.list(query));
  for (const status of order_statuses) {
    const wanted = ids(model.orders.filter((order) => order.status === status));
    await check(wanted, (query) => store.orders.list({ ...query, status }));
  }
  for (const user_id of [model.users[0] ?? 1, model.orders[0]?.user_id ?? 1, 1_000_000]) {
    const wanted = ids(model.orders.filter((order) => order.user_id === user_id));
    await check(wanted, (query) => store.orders.list({ ...query, user_id }));
  }
}

async function change(store: Store, model: Model, random: (below: number) => number) {
  const pending: Promise<unknown>[] = [];
  const make = async () => {
    const email = `u${crypto.randomUUID()}@example.com`;
    const { record } = await store.users.create({ email, name: null, metadata: {} }, null);
    model.users.push(record.id);
  };
  for (let count = random(200); count > 0; count -= 1) pending.push(make());
  await Promise.all(pending);
  const withOrders = new Set(model.orders.map(({ user_id }) => user_id));
  // Single users and whole stretches, at the end as well.
  for (let count = random(4); count > 0; count -= 1) {
    const from = random(3) === 0 ? model.users.length - 20 : random(model.users.length);
    for (const id of model.users.slice(Math.max(0, from), from + random(90))) {
      if (withOrders.has(id)) continue;
      await store.users.remove(id, null);
      model.users.splice(model.users.indexOf(id), 1);
    }
  }
  for (let count = random(150); count > 0; count -= 1) {
    const user_id = model.users[random(Math.min(5, model.users.length))];
    if (user_id === undefined) break;
    const items = [{ sku: "a", quantity: 1, unit_price: 1 }];
    const fields = { user_id, currency: "EUR", items, total: 1, metadata: {} };
    const { record } = await store.orders.place(fields, null);
    model.orders.push({ id: record.id, user_id, status: record.status });
  }
  for (let count = random(120); count > 0 && model.orders.length > 0; count -= 1) {
    const order = model.orders[random(model.orders.length)];
    const status = order_statuses[random(order_statuses.length)];
    if (order === undefined || status === undefined) break;
    const step = store.orders.update(order.id, (stored) => patchOrder(stored, { status }), null);
    await step.then((changed) => Object.assign(order, { status: changed?.status })).catch(() => {});
  }
}

test.each([1, 2, 3])(
  "`list` agrees with a walk over the rows when rows come, go and change (seed %i)",
  async (seed) => {
    using folder = makeFolder();
    const path = `${folder.path}/lists.db`;
    const random = randomOf(seed);
    const model: Model = { users: [], orders: [] };
    let store = await openIn(path);
    for (let round = 0; round < 30; round += 1) {
      await change(store, model, random);
      await expectPages(store, model, random);
      if (round % 10 === 9) {
        await store.close();
        store = await openIn(path);
      }
    }
    await store.close();
  },
  30_000,
);

test("`list` is exact when users were deleted by another process and the last ones are gone", async () => {
  using folder = makeFolder();
  const path = `${folder.path}/lists.db`;
  const store = await openIn(path);
  for (let id = 1; id <= 300; id += 1) {
    await store.users.create({ email: `u${id}@example.com`, name: null, metadata: {} }, null);
  }
  {
    using other = new Database(path);
    other.run("delete from users where id between 60 and 200 or id > 290");
  }
  const { rows, total } = await store.users.list({ limit: 3, offset: 58 });
  expect([total, rows.map(({ id }) => id)]).toEqual([149, [59, 201, 202]]);
  const { record } = await store.users.create({ email: "x@y.zz", name: null, metadata: {} }, null);
  expect(record.id).toBe(301);
  const last = await store.users.list({ limit: 2, offset: 148 });
  expect([last.total, last.rows.map(({ id }) => id)]).toEqual([150, [290, 301]]);
  await store.close();
});

test("`orders` refuses to lose a row when anyone deletes one", async () => {
  using folder = makeFolder();
  const path = `${folder.path}/lists.db`;
  const store = await openIn(path);
  const { record } = await store.users.create({ email: "a@b.cc", name: null, metadata: {} }, null);
  const items = [{ sku: "a", quantity: 1, unit_price: 1 }];
  const fields = { user_id: record.id, currency: "EUR", items, total: 1, metadata: {} };
  await store.orders.place(fields, null);
  using other = new Database(path);
  expect(() => other.run("delete from orders")).toThrow("orders are never deleted");
  expect((await store.orders.list({ limit: 1, offset: 0 })).total).toBe(1);
  await store.close();
});

test("`list` agrees with plain SQL when a bucket of the top level is full", async () => {
  using folder = makeFolder();
  const path = `${folder.path}/lists.db`;
  const store = await openIn(path);
  using db = new Database(path);
  const rows = 270_000;
  db.run("pragma synchronous = off");
  db.run(`
    with recursive number (n) as (select 1 union all select n + 1 from number where n < ${rows})
    insert into users (email, email_key, metadata, version, created_at, updated_at)
    select n || '@x.zz', n || '@x.zz', '{}', 1, '', '' from number
  `);
  db.run(`
    insert into orders (user_id, user_position, currency, items, total, status, metadata, version,
      created_at, updated_at)
    select 1, id, 'EUR', '[]', 0, case when id % 7 = 0 then 'paid' else 'pending' end, '{}', 1, '', ''
    from users
  `);
  db.run("update orders set status = 'shipped' where id between 5000 and 9200 or id % 1000 = 0");
  db.run(
    "delete from users where id between 100 and 4300 or id % 997 = 0 or id between 20000 and 90000",
  );

  const random = randomOf(4);
  const compare = async (
    table: string,
    where: string,
    query: Parameters<Store["orders"]["list"]>[0],
  ) => {
    const list = table === "users" ? store.users.list(query) : store.orders.list(query);
    const wanted = db
      .query(
        `select id from ${table} ${where} order by id limit ${query.limit} offset ${query.offset}`,
      )
      .all();
    const { total } = db.query(`select count(*) as total from ${table} ${where}`).get() as {
      total: number;
    };
    const page = await list;
    expect([page.total, page.rows.map(({ id }) => ({ id }))]).toEqual([
      total,
      wanted as { id: number }[],
    ]);
  };
  for (let round = 0; round < 60; round += 1) {
    const offset = round === 0 ? 0 : random(rows);
    await compare("users", "", { limit: 5, offset });
    await compare("orders", "", { limit: 5, offset });
    for (const status of ["pending", "paid", "shipped"] as const) {
      const scaled = status === "pending" ? offset : Math.floor(offset / 8);
      await compare("orders", `where status = '${status}'`, { limit: 5, offset: scaled, status });
    }
  }
  await store.close();
}, 60_000);
