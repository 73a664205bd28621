// The change feed on PostgreSQL: changes get their ids after their commits, in any process.
import { describe, expect, spyOn, test } from "bun:test";
import type { Change } from "../../src/change.ts";
import { AppError } from "../../src/error.ts";
import type { Session } from "../../src/postgres/connection.ts";
import {
  feedState,
  hasUnnumbered,
  numberInPasses,
  numberOnce,
} from "../../src/postgres/numbering.ts";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields, rename, setFields, userFields } from "../contract/open.ts";
import { expectRejection } from "../expect-error.ts";
import { withStore } from "../open-store.ts";
import { cluster, countPages, makeHarness, patient } from "./postgres-harness.ts";

const ROUNDS = 10;
const all = { limit: 1000, offset: 0 };
/** A write that another program would hold open, as one of the service does. */
const insertChange = `
  insert into change_outbox (type, record_id, version, token, created_at)
  values (1, 1000, 1, 'late', 0)
`;

async function listAfter(store: Store, after: number) {
  const { records, ...state } = await store.changes.list({ ...all, after });
  const changes: Change[] = JSON.parse(`[${records}]`);
  return { changes, ...state };
}

/** Reads on until a page is empty. @returns the changes, each of which followed the one before */
async function follow(store: Store, isDone: () => boolean): Promise<Change[]> {
  const seen: Change[] = [];
  for (;;) {
    const done = isDone();
    const { changes } = await listAfter(store, seen.length);
    for (const change of changes) expect(change.id).toBe(seen.push(change));
    if (done && changes.length === 0) return seen;
  }
}

/** @returns the versions of each record, in the order of its changes. That of a deletion is as if it were an update */
function versionsOf(changes: readonly Change[]): Map<string, number[]> {
  const versions = new Map<string, number[]>();
  for (const { type, record_id, version } of changes) {
    const record = `${type.split(".")[0]} ${record_id}`;
    const next = type === "user.deleted" ? version + 1 : version;
    versions.set(record, [...(versions.get(record) ?? []), next]);
  }
  return versions;
}

function expectInOrder(changes: readonly Change[]): void {
  for (const [record, versions] of versionsOf(changes)) {
    expect([record, versions]).toEqual([record, versions.map((_, at) => at + 1)]);
  }
}

describe.if(cluster !== null)("changes", () => {
  test("reach readers of each replica once, in the order of the versions, while replicas write", async () => {
    await using world = await makeHarness();
    const stores = [await world.open(), await world.open()] as const;
    const users = await Promise.all(stores.map((store) => newUser(store)));
    let writing = true;
    let writes = users.length;
    const write = async (store: Store, at: number) => {
      for (let round = 0; round < 30; round += 1) {
        const { id } = users[(at + round) % users.length] ?? { id: 0 };
        if (at % 3 === 0) await newUser(store);
        else if (at % 3 === 1) await store.users.update(id, rename, null);
        else await store.orders.place(orderFields(id), null);
        writes += 1;
      }
    };
    const readers = stores.map((store) => follow(store, () => !writing));
    await Promise.all(stores.flatMap((store) => [0, 1, 2, 3, 4, 5].map((at) => write(store, at))));
    writing = false;
    const [one = [], other] = await Promise.all(readers);
    expect(one).toHaveLength(writes);
    expect(other).toEqual(one);
    expectInOrder(one);
    expect(await stores[0].check()).toEqual([]);
  }, 60_000);

  test("of one record are in the order of its versions when replicas wait for its row at the same time", async () => {
    await using world = await makeHarness();
    const open = () => world.open({ databaseUrl: world.url + patient });
    const stores = [await open(), await open()] as const;
    const { id } = await newUser(stores[0]);
    const placed = await stores[0].orders.place(orderFields(id), null);
    let writes = 2;
    const written = async (writing: readonly Promise<unknown>[]) => {
      const results = await Promise.all(writing);
      writes += results.filter((result) => result !== null).length;
    };
    for (let round = 0; round < ROUNDS; round += 1) {
      const gone = await newUser(stores[0]);
      await using held = await world.hold(`
        select from users where id in (${id}, ${gone.id}) for update;
        select from orders where id = ${placed.record.id} for update
      `);
      const writing = stores.flatMap(({ users, orders }) => [
        users.update(id, rename, null),
        users.update(id, ({ name }) => userFields({ name }), null),
        orders.update(
          placed.record.id,
          setFields({ metadata: { mark: crypto.randomUUID() } }),
          null,
        ),
        users.update(gone.id, rename, null),
        users.remove(gone.id, null),
        users.create(userFields(), null),
        orders.place(orderFields(id), null),
      ]);
      await world.untilWaiting(4);
      await held.commit();
      await written([...writing, Promise.resolve(gone)]);
    }
    const { changes } = await listAfter(stores[1], 0);
    expect(changes.map(({ id: number }) => number)).toEqual(changes.map((_, at) => at + 1));
    expect(changes).toHaveLength(writes);
    expectInOrder(changes);
    const ofUser = changes.filter(
      ({ type, record_id }) => type === "user.updated" && record_id === id,
    );
    expect(ofUser).toHaveLength(4 * ROUNDS);
  }, 60_000);

  test("are not held up by an open transaction, whose change follows when it is committed", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    await newUser(store);
    await using held = await world.hold(insertChange);
    await newUser(store);
    expect((await listAfter(store, 0)).last).toBe(2);
    await newUser(store);
    expect((await listAfter(store, 2)).last).toBe(3);
    await held.commit();
    const { changes } = await listAfter(store, 3);
    expect(changes).toMatchObject([{ id: 4, record_id: 1000, token: "late" }]);
  });

  test("get consecutive ids when passes are smaller than what is committed, and transactions are open", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const db = world.connect();
    await using held = await world.hold(insertChange);
    for (let at = 0; at < 5; at += 1) await newUser(store);
    await numberOnce(db, 2);
    await newUser(store);
    await numberOnce(db, 2);
    await held.commit();
    await newUser(store);
    while ((await numberOnce(db, 1)).hasMore);
    expect(await numberInPasses(db)).toMatchObject({ first: 1, last: 8 });
    const { changes } = await listAfter(store, 0);
    expect(changes.map(({ id }) => id)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(new Set(changes.map(({ record_id }) => record_id)).size).toBe(8);
  });

  test("are found without those that were numbered when a snapshot keeps them", async () => {
    await using world = await makeHarness();
    const db = world.connect();
    await using _snapshot = await world.hold(
      "set transaction isolation level repeatable read; select",
    );
    // A transaction that writes for long must not keep them either.
    await using _writer = await world.hold(insertChange);
    await world.run(`
      insert into change_outbox (type, record_id, version, created_at)
      select 1, n, 1, 0
      from generate_series(1, 30000) as n
    `);
    await numberInPasses(db);
    const query = `select ${hasUnnumbered("state")} from (${feedState}) as state`;
    const pages = await countPages(db, query);
    expect(pages).toBeGreaterThan(0);
    // The function for the origin reads catalogs. Those rows are on more than 200 pages.
    expect(pages).toBeLessThan(200);
  });

  test("are read on while another process is numbering those that follow", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    for (let at = 0; at < 4; at += 1) await newUser(store);
    expect((await listAfter(store, 0)).last).toBe(4);
    await using _numbering = await world.hold("select from change_feed for update");
    await newUser(store);
    const { records } = await store.changes.list({ limit: 2, offset: 0, after: 1 });
    const read: Change[] = JSON.parse(`[${records}]`);
    expect(read.map(({ id }) => id)).toEqual([2, 3]);
    // Whether it is the last one is not known yet.
    const last = async () => store.changes.list({ limit: 2, offset: 0, after: 2 });
    await expectRejection(last(), "unavailable", "the changes are being numbered");
  });

  test("are not waited for longer than 5 s, when there are many without an id", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    // Three passes.
    await world.run(`
      insert into change_outbox (type, record_id, version, created_at)
      select 1, n, 1, 0
      from generate_series(1, 25000) as n
    `);
    {
      let nowMs = 0;
      using _clock = spyOn(performance, "now").mockImplementation(() => {
        nowMs += 3_000;
        return nowMs;
      });
      const page = Promise.resolve(store.changes.list({ limit: 2, offset: 0 }));
      await expectRejection(page, "unavailable", "the changes are being numbered");
    }
    expect((await listAfter(store, 24_998)).changes.map(({ id }) => id)).toEqual([24_999, 25_000]);
  });

  test("are looked for after a write of a request, and not after other work", async () => {
    await using world = await makeHarness();
    const db = world.connect();
    let writes = 0;
    db.onWrite(() => {
      writes += 1;
    });
    const one = (session: Session) => session.all("select 1");
    await db.run("read", one);
    await db.runAdmitted("write", one, { requests: 0 });
    await expectRejection(
      db.run("write", () => Promise.reject(new AppError("unavailable", "failed"))),
      "unavailable",
    );
    expect(writes).toBe(0);
    await db.run("write", one);
    expect(writes).toBe(1);
  });

  test("are numbered by another process when the one that wrote them has ended", async () => {
    await using world = await makeHarness();
    await withStore(world.url, async (store) => newUser(store));
    expect((await listAfter(await world.open(), 0)).changes).toMatchObject([{ id: 1 }]);
  });

  test("get no ids from a server that only reads, which serves those that have one", async () => {
    await using world = await makeHarness();
    const first = await world.open();
    await newUser(first);
    await listAfter(first, 0);
    // It would number the change a second after its write.
    await first.close();
    await world.run(insertChange);
    const reader = await world.open({ mode: "serve-read-only", create: false });
    await reader.checkUsable();
    await expectRejection(newUser(reader), "unavailable");
    expect((await listAfter(reader, 0)).last).toBe(1);
    expect((await listAfter(await world.open(), 0)).last).toBe(2);
    expect((await listAfter(reader, 0)).changes).toMatchObject([{ id: 1 }, { id: 2 }]);
  });

  test("wake clients of a server that only reads when another has numbered them", async () => {
    await using world = await makeHarness();
    const writer = await world.open();
    const reader = await world.open({ mode: "serve-read-only", create: false });
    const woken = Promise.withResolvers<void>();
    using _ = reader.changes.subscribe(woken.resolve);
    await newUser(writer);
    await woken.promise;
  });

  test("stay in one feed when all processes start again", async () => {
    await using world = await makeHarness();
    const feedOf = (store: Store) => listAfter(store, 0).then(({ feed }) => feed);
    const feed = await withStore(world.url, async (store) => {
      await newUser(store);
      return feedOf(store);
    });
    expect(await withStore(world.url, feedOf)).toBe(feed);
  });

  const lost = [
    ["the server is another one", "update change_feed set origin[1] = 1, xid = txid_current()"],
    ["the timeline is another one", "update change_feed set origin[2] = 99, xid = txid_current()"],
    ["the database is another one", "update change_feed set origin[3] = 1, xid = txid_current()"],
    ["the state was restored", "update change_feed set xid = xid - 1"],
    ["the last change is not the one that the feed has", "delete from changes where id = 3"],
    [
      "the last change was replaced",
      "delete from changes where id = 3; insert into changes values (3, 1, 3, 1, null, null, 0)",
    ],
  ] as const;
  test.each(lost)("begin a new feed when %s", async (_what, statement) => {
    await using world = await makeHarness();
    const store = await world.open();
    for (let at = 0; at < 3; at += 1) await newUser(store);
    const before = await listAfter(store, 0);
    await world.run(statement);
    const { feed, last } = await listAfter(store, 0);
    expect(feed).not.toBe(before.feed);
    await newUser(store);
    const after = await listAfter(store, 0);
    expect(after).toMatchObject({ feed, last: last + 1 });
    expect(await world.run("select from change_feed")).toHaveLength(1);
  });

  test("of a database that was restored or copied are shown by a server that only reads", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    for (let at = 0; at < 3; at += 1) await newUser(store);
    const { feed } = await listAfter(store, 0);
    await world.run("update change_feed set origin[1] = 1, xid = xid - 1");
    const reader = await world.open({ mode: "serve-read-only", create: false });
    for (const include of [undefined, "record"] as const) {
      for (const limit of [10, 1000]) {
        const query = { limit, offset: 0, after: 1, ...(include && { include }) };
        expect(await reader.changes.list(query)).toMatchObject({ feed, last: 3 });
      }
    }
  });

  test("are not lost when the server does not offer what identifies it", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    await newUser(store);
    const { feed } = await listAfter(store, 0);
    await world.run(
      "update change_feed set origin = array[null, null, origin[3]], xid = txid_current()",
    );
    await newUser(store);
    expect(await listAfter(store, 0)).toMatchObject({ feed, last: 2 });
  });

  const damages = [
    ["the changes are not consecutive: 2 of them from 1 to 3", "delete from changes where id = 2"],
    [
      "the changes of user 1 do not ascend by one: version 5 follows 1",
      "update changes set version = 5 where id = 3",
    ],
    [
      "the last change of user 1 has version 2, the record has 7",
      "update users set version = 7 where id = 1",
    ],
    [
      "the last change of user 2 is not its deletion, but it does not exist",
      "delete from users where id = 2",
    ],
    [
      "user 2 exists although its last change is its deletion",
      "update changes set type = 3 where id = 2",
    ],
  ] as const;
  test.each(damages)("have the finding: %s", async (finding, statement) => {
    await using world = await makeHarness();
    const store = await world.open();
    const { id } = await newUser(store);
    await newUser(store);
    await store.users.update(id, rename, null);
    await listAfter(store, 0);
    expect(await store.check()).toEqual([]);
    await world.run(statement);
    expect(await store.check()).toContain(finding);
  });
});
