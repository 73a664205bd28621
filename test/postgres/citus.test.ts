// The store for Citus on the tables of one server, without Citus: its statements and results, not its plans.
import { describe, expect, test } from "bun:test";
import { SQL } from "bun";
import { copyRows } from "../../src/copy.ts";
import { newOrder } from "../../src/order.ts";
import { openPostgres } from "../../src/postgres/backend.ts";
import { nextNumbers } from "../../src/postgres/citus/id-lock.ts";
import { withPostgresCopyTarget } from "../../src/postgres/copy-target.ts";
import { migrations } from "../../src/postgres/migrate.ts";
import type { StoreOptions } from "../../src/store.ts";
import { newUser, orderFields, outcomesOf } from "../contract/open.ts";
import { expectRejection } from "../expect-error.ts";
import { storeOptions } from "../open-store.ts";
import { storeContract } from "../store.contract.ts";
import { type Cluster, findCluster } from "./cluster.ts";
import { createDatabasePool, databasesOf, withFewConnections } from "./database.ts";
import { storedTime, tablesWithoutKey } from "./postgres-harness.ts";

const cluster = await findCluster();

/** Creates the tables, which are not distributed. */
async function createTables(server: Cluster, url: string): Promise<void> {
  const distribution = /^select create_\w+_table\(/m;
  const statements = migrations.citus.flat().filter((statement) => !distribution.test(statement));
  await server.run(url, statements.join(";\n"));
  await server.run(
    url,
    `insert into user_api values ('', ${migrations.citus.length}, 'citus', '')`,
  );
}

if (cluster !== null) {
  const server = cluster;
  const databases = createDatabasePool(server, (url) => createTables(server, url));
  /** A database with the tables, and a store on it. @param parameters of its URL */
  const open = async (options: Partial<StoreOptions> = {}, parameters = "") => {
    const url = await databases.take();
    const databaseUrl = `${withFewConnections(url)}&layout=citus${parameters}`;
    const store = await openPostgres({ ...storeOptions, ...options, databaseUrl });
    return {
      url,
      store,
      async [Symbol.asyncDispose]() {
        await store.close();
        await databases.release(url);
      },
    };
  };

  describe("on one server", () => {
    storeContract("citus", async (options) => {
      const it = await open(options);
      return { ...it.store, close: it[Symbol.asyncDispose] };
    });

    test("every table has a primary key", async () => {
      await using it = await open();
      expect(await server.run(it.url, tablesWithoutKey)).toEqual([]);
    });

    test("a change of a locked row fails without another attempt when the lock timeout has passed", async () => {
      await using it = await open({}, "&lock_timeout=200");
      const { url, store } = it;
      const { id } = await newUser(store);
      const { record } = await store.orders.place(orderFields(id), null);
      const sql = new SQL(url, { max: 1 });
      await sql.unsafe("begin; select from users for update; select from orders for update");
      let attempts = 0;
      const count = <Fields>(fields: Fields): Fields => {
        attempts += 1;
        return fields;
      };
      const paid = { status: "paid", metadata: {} } as const;
      const changes = [
        () => store.users.update(id, (user) => count({ ...user, name: "new" }), null),
        () => store.orders.update(record.id, () => count(paid), null),
      ];
      for (const change of changes) {
        await expectRejection(Promise.resolve(change()), "unavailable", "the database is busy");
      }
      expect(attempts).toBe(2);
      await sql.close();
    });

    test("exportPage returns each order once when ids are dense, sparse and far apart", async () => {
      await using it = await open();
      const { url, store } = it;
      const { id } = await newUser(store);
      const ids = [
        "select generate_series(1, 2500)",
        "select 1024 * generate_series(3, 2000) + 1",
        "select 9007199254740991",
      ];
      await server.run(
        url,
        `
          insert into orders
          select 1, id, ${id}, 'EUR', '[]', 0, 'pending', '{}', 1, ${storedTime}, ${storedTime}
          from (${ids.join(" union all ")}) as assigned (id)
        `,
      );
      const found: number[] = [];
      for (;;) {
        const page = await store.bulk.orders.exportPage(found.at(-1) ?? 0, 100, "id");
        if (page.length === 0) break;
        found.push(...page.map((order) => order.id));
      }
      const expected = await server.run<{ id: string }>(url, "select id from orders order by id");
      expect(found).toEqual(expected.map((row) => Number(row.id)));
    });

    test("withCopyTarget stores buckets and totals when the orders have ids of their own", async () => {
      const url = await databases.take();
      // As after a user was created on one connection and deleted on another.
      await server.run(url, "update user_totals set users = 1 where slot = 3");
      await server.run(url, "update user_totals set users = -1 where slot = 0");
      const sourceUrl = await databasesOf(server).take();
      const source = await openPostgres({ ...storeOptions, databaseUrl: sourceUrl });
      await newUser(source);
      const user = await newUser(source);
      const { record } = await source.orders.place(orderFields(user.id), null);
      const databaseUrl = `${url}&layout=citus`;
      const { signal } = new AbortController();
      await source.withCopySource((rows) =>
        withPostgresCopyTarget({ databaseUrl }, (target) =>
          copyRows(rows, target, () => {}, signal),
        ),
      );
      const store = await openPostgres({ ...storeOptions, databaseUrl });
      expect(await store.orders.get(record.id)).toEqual(record);
      expect((await store.users.list({ limit: 10, offset: 0 })).total).toBe(2);
      expect((await store.orders.list({ limit: 10, offset: 0 })).total).toBe(1);
      expect(await store.check()).toEqual([]);
      await source.close();
      await store.close();
      await databases.release(url);
      await databasesOf(server).release(sourceUrl);
    });

    test("creates in one turn share a commit unless the key of one is stored", async () => {
      const commits: number[] = [];
      await using it = await open({ onCommit: (writes) => commits.push(writes) });
      const { store } = it;
      const { id } = await newUser(store);
      const key = (name: string) => ({ owner: "a".repeat(64), key: name, fingerprint: name });
      await store.orders.place(orderFields(id), key("known"));
      commits.length = 0;
      const placeAll = (...names: string[]) =>
        outcomesOf(names.map((name) => store.orders.place(orderFields(id), key(name))));
      expect(await placeAll("a", "b", "c", "d")).toEqual(["new", "new", "new", "new"]);
      expect(commits).toEqual([4]);
      expect(await placeAll("e", "known", "f", "g")).toEqual(["new", "replayed", "new", "new"]);
      expect(commits).toEqual([4, 1, 1, 1, 1]);
    });

    test("import waits for a create that has an id when it brings the same id", async () => {
      await using it = await open();
      const { url, store } = it;
      const user = await newUser(store);
      const creating = new SQL(url, { max: 1 });
      await creating.unsafe("begin");
      const [{ number }] = await creating.unsafe(nextNumbers("orders"), [1]);
      const id = number * 1024 + user.id;
      const order = {
        ...newOrder(id, orderFields(user.id), user.created_at),
        status: "paid",
      } as const;
      const importing = store.bulk.orders.import([order], false);
      await Bun.sleep(100);
      await creating.unsafe(`
        insert into orders
        values (${user.id}, ${id}, ${user.id}, 'EUR', '[]', 0, 'pending', '{}', 1, ${storedTime}, ${storedTime})
      `);
      await creating.unsafe("commit");
      expect(await importing).toEqual([
        { outcome: "rejected", reason: `order ${id} already exists with different values` },
      ]);
      await creating.close();
    });
  });
}
