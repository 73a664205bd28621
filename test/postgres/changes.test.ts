// The change feed on PostgreSQL: changes get their ids after their commits, in any process.
import { expect } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import type { Change } from "../../src/domain/change.ts";
import type { Store } from "../../src/domain/store.ts";
import type { Session } from "../../src/postgres/server/connection.ts";
import { selectPage } from "../../src/postgres/tables/changes.ts";
import { feedStatus } from "../../src/postgres/tables/numbering.ts";
import { totalOf } from "../../src/postgres/tables/outbox.ts";
import { newUser, rename, userFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { withStore } from "../support/open-store.ts";
import { expectPages, type Harness, insertUser, patient, test } from "./postgres-harness.ts";

const all = { limit: 1000, offset: 0 };
/** A write that another program would hold open, as one of the service does. */
const insertChange = `
  insert into change_outbox (type, record_id, version, token, created_at)
  values (1, 1000, 1, 'late', 0)
`;

function insertChanges(count: number): string {
  return `
    insert into change_outbox (type, record_id, version, created_at)
    select 1, n, 1, 0
    from generate_series(1, ${count}) as n
  `;
}

async function number({ run }: Harness, maxRows: number): Promise<number> {
  const call = `select number_changes(${maxRows})::integer as numbered`;
  return (await run<{ numbered: number }>(call))[0]?.numbered ?? 0;
}

async function listAfter(store: Store, after: number) {
  const { records, ...state } = await store.changes.list({ ...all, after });
  const changes: Change[] = JSON.parse(`[${records}]`);
  return { changes, ...state };
}

test("changes of one record are in the order of its versions when a writer has waited for the row of another", async (world) => {
  const store = await world.open({ databaseUrl: world.url + patient });
  const replica = await world.open();
  const [free, locked, user] = [await newUser(store), await newUser(store), await newUser(store)];
  await using held = await world.hold(`select from users where id = ${locked.id} for update`);
  // The number of their transaction is lower than that of the replica, which changes the user before them.
  const waiting = [free, locked, user].map(({ id }) => store.users.update(id, rename, null));
  await world.untilWaiting();
  await replica.users.update(user.id, rename, null);
  await held.commit();
  expect((await Promise.all(waiting)).map((record) => record?.version)).toEqual([2, 2, 3]);
  const { changes } = await listAfter(store, 0);
  expect(changes).toHaveLength(7);
  const ofUser = changes.filter(({ record_id }) => record_id === user.id);
  expect(ofUser.map(({ version }) => version)).toEqual([1, 2, 3]);
});

test("changes get consecutive ids, and totals are exact, when calls number fewer than are committed, and transactions stay open", async (world) => {
  const count = `select (${totalOf("users")})::integer as total, (select count(*) from users)::integer as rows`;
  const expectExact = async () => {
    const [{ total, rows } = { total: -1, rows: 0 }] =
      await world.run<Record<"total" | "rows", number>>(count);
    expect(total).toBe(rows);
  };
  // A store numbers on its own.
  const write = async (...ids: readonly number[]) => {
    for (const id of ids) await world.run(insertUser(id));
    await expectExact();
  };
  const expectNumbered = async (most: number, numbered: number) => {
    expect(await number(world, most)).toBe(numbered);
    await expectExact();
  };
  await write(1, 2);
  await number(world, 1);
  await using early = await world.hold(insertUser(1001));
  const abandoned = await world.hold(insertUser(1002));
  await write(3, 4, 5);
  await using late = await world.hold(insertUser(1000));
  await write(6, 7);
  await expectNumbered(2, 2);
  await late.commit();
  await expectNumbered(2, 2);
  await abandoned[Symbol.asyncDispose]();
  await expectNumbered(3, 2);
  await write(8, 9);
  await early.commit();
  for (const numbered of [2, 1, 0]) await expectNumbered(2, numbered);
  const { changes } = await listAfter(await world.open(), 0);
  expect(changes.map(({ id }) => id)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  const records = changes.map(({ record_id }) => record_id);
  expect(records).toEqual([1, 2, 3, 4, 5, 1000, 6, 7, 1001, 8, 9]);
});

test("changes of an import are numbered when its command ends, also when it fails, and more wait than one call numbers", async (world) => {
  await number(world, 1);
  await world.run(insertChanges(20_000));
  const importing = withStore(world.url, async ({ bulk }) => {
    await bulk.users.import([userFields(), userFields()]);
    throw new Error("the second batch fails");
  });
  await expect(importing).rejects.toThrow("the second batch fails");
  expect(await world.run("select from change_outbox")).toEqual([]);
  const reader = await world.open({ mode: "serve-read-only", create: false });
  const { last, changes } = await listAfter(reader, 20_000);
  expect([last, changes.map(({ id }) => id)]).toEqual([20_002, [20_001, 20_002]]);
});

test("changes are not deleted while another process numbers", async (world) => {
  const store = await world.open();
  await newUser(store);
  await newUser(store);
  await listAfter(store, 0);
  await using held = await world.hold("select number_changes(1); delete from change_outbox");
  const deleting = store.changes.deleteExpired(new Date(Date.now() + 1000));
  await world.untilWaiting();
  await held.commit();
  await deleting;
  expect(await listAfter(store, 1)).toMatchObject({ first: 2, last: 2 });
});

test("changes are read before all are numbered, and not again when they were numbered or deleted, and a transaction keeps them", async (world) => {
  const db = world.connect(world.urlWith("max=1"));
  await number(world, 1);
  await using _held = await world.hold(
    "set transaction isolation level repeatable read; select txid_current()",
  );
  const store = await world.open();
  await world.run(insertChanges(30_000));
  // Two calls number them, and each page waits for one.
  const page = await listAfter(store, 0);
  expect([page.last, page.changes.length]).toEqual([20_000, 1_000]);
  expect((await listAfter(store, page.last)).changes[0]?.id).toBe(page.last + 1);
  while ((await number(world, 20_000)) > 0);
  while (await store.changes.deleteExpired(new Date()));
  const { first, last, changes } = await listAfter(store, 29_999);
  expect([first, last, changes.length]).toEqual([30_000, 30_000, 1]);
  // The rows of the outbox are on more than 200 pages, as are those of the changes.
  const queries = [
    feedStatus,
    totalOf("users"),
    "select number_changes(20000)",
    selectPage.replace("$1", "null").replace("$2", "0").replace("$3", "1"),
  ];
  for (const query of queries) await expectPages(db, 30, query);
});

test("changes are read, and deleted, when others are committed all the time", async (world) => {
  // Each call that numbers changes leaves another one.
  await world.run(`
    create function insert_more() returns trigger language plpgsql as $$
    begin
      insert into change_outbox (type, record_id, version, created_at) values (1, 1000, 1, 0);
      return null;
    end
    $$;
    create trigger inserting after insert on change_feed
    for each row execute function insert_more()
  `);
  const store = await world.open();
  const { id } = await newUser(store);
  const { changes } = await listAfter(store, 0);
  expect(changes).toContainEqual(expect.objectContaining({ record_id: id }));
  await store.changes.deleteExpired(new Date(0));
});

test("changes are looked for after a write of a request, and not after other work", async (world) => {
  const db = world.connect();
  const writes: null[] = [];
  db.onWrite(() => void writes.push(null));
  const one = (session: Session) => session.all("select 1");
  for (const kind of ["read", "list", "background"] as const) await db.run(kind, one);
  const failing = db.run("write", () => Promise.reject(new AppError("unavailable", "failed")));
  await expectRejection(failing, "unavailable");
  expect(writes).toEqual([]);
  await db.run("write", one);
  expect(writes).toEqual([null]);
});

test("changes get no ids from a server that only reads, which serves those that have one, and wakes clients", async (world) => {
  const first = await world.open();
  await newUser(first);
  const { feed } = await listAfter(first, 0);
  // It would number the change a second after its write.
  await first.close();
  await world.run(insertChange);
  const reader = await world.open({ mode: "serve-read-only", create: false });
  expect((await listAfter(reader, 0)).last).toBe(1);
  const woken = Promise.withResolvers<void>();
  using _ = reader.changes.subscribe(woken.resolve);
  // The feed is the same for a server that starts.
  expect(await listAfter(await world.open(), 0)).toMatchObject({ feed, last: 2 });
  await woken.promise;
  // Also if the database was restored or copied, so that another server would begin a new feed.
  await world.run("update change_feed set origin[1] = 1, xid = xid - 1");
  for (const include of [undefined, "record"] as const) {
    const query = { ...all, after: 1, ...(include && { include }) };
    const { records, ...state } = await reader.changes.list(query);
    expect(state).toMatchObject({ feed, last: 2 });
    expect(JSON.parse(`[${records}]`)).toMatchObject([{ id: 2 }]);
  }
});

test("changes begin a new feed when they may have been lost or replaced, and not when the server does not offer what identifies it", async (world) => {
  const store = await world.open();
  for (let at = 0; at < 3; at += 1) await newUser(store);
  const lastId = "(select max(id) from changes)";
  const losses = [
    // The server, the timeline and the database are others, and the state was restored.
    "update change_feed set origin[1] = 1, xid = txid_current()",
    "update change_feed set origin[2] = 99, xid = txid_current()",
    "update change_feed set origin[3] = 1, xid = txid_current()",
    "update change_feed set xid = xid - 1",
    `delete from changes where id = ${lastId}`,
    `
      with gone as (delete from changes where id = ${lastId} returning *)
      insert into changes select * from gone
    `,
  ];
  let before = await listAfter(store, 0);
  for (const statement of losses) {
    await world.run(statement);
    const begun = await listAfter(store, 0);
    expect([statement, begun.feed]).not.toEqual([statement, before.feed]);
    await newUser(store);
    const after = await listAfter(store, 0);
    expect(after).toMatchObject({ feed: begun.feed, last: begun.last + 1 });
    expect(await world.run("select from change_feed")).toHaveLength(1);
    before = after;
  }
  const hide = "update change_feed set origin = array[null, null, origin[3]], xid = txid_current()";
  await world.run(hide);
  expect(await listAfter(store, 0)).toMatchObject({ feed: before.feed });
});

test("changes are numbered only when the whole of a dump is restored, and then all records are counted", async (world) => {
  const store = await world.open();
  // As during a restore: the foreign keys come last.
  await world.run("alter table orders drop constraint orders_user_id_fkey");
  await world.run("update change_feed set xid = 0");
  const listing = Promise.resolve(store.changes.list(all));
  await expectRejection(listing, "unavailable", "the database is currently unreachable");
  await world.run(insertUser(7));
  await world.run("alter table orders add foreign key (user_id) references users");
  await store.changes.list(all);
  expect((await store.users.list(all)).total).toBe(1);
});
