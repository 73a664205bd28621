// A standby, which is promoted without all commits, and connections that have led to it for a moment; and a dump, which has
// exact totals and all changes wherever it is restored.
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Store } from "../../src/domain/store.ts";
import { newUser, orderFields, rename, setPaid } from "../contract/open.ts";
import { startSwitch } from "../failover/switch.ts";
import { expectRejection } from "../support/expect-error.ts";
import { withStore } from "../support/open-store.ts";
import { findPrograms, runOn, startInstance } from "./instance.ts";

const programs = findPrograms() ?? "";
const hasProgram = (name: string) => existsSync(join(programs, name));

const READ_ONLY = "the database is read-only at the moment";

const startServer = (primaryUrl: string | null = null, settings = {}) =>
  startInstance(programs, { fsync: "off", ...settings }, primaryUrl);

async function addUsers(store: Store, count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) await newUser(store);
}

async function feedOf(store: Store) {
  const { feed, last } = await store.changes.list({ limit: 1, offset: 0 });
  return { feed, last };
}

const countUsers = async ({ users }: Store) => (await users.list({ limit: 1, offset: 0 })).total;

/** @returns the message of the rejection; `null` if the user was created */
function problemOfCreate(store: Store): Promise<string | null> {
  return newUser(store).then(
    () => null,
    (error) => error.message,
  );
}

test.if(["pg_basebackup", "pg_ctl"].every(hasProgram))(
  "connections leave a standby whenever the endpoint leads to the primary again, and the feed has another name when it is promoted without all commits",
  async () => {
    await using primary = await startServer();
    await using endpoint = await startSwitch(primary.url);
    await withStore(primary.url, (store) => addUsers(store, 1));
    await using standby = await startServer(primary.url);
    await withStore(endpoint.through(primary.url), async (store) => {
      for (let created = 1; created <= 2; created += 1) {
        endpoint.pointAt(standby.url);
        // The first connections are closed. Their requests fail, and the next ones reach the standby.
        while ((await problemOfCreate(store)) !== READ_ONLY) await Bun.sleep(5);
        while ((await countUsers(store)) < created) await Bun.sleep(5);
        endpoint.pointAt(primary.url, true);
        while ((await problemOfCreate(store)) !== null) {
          expect(await countUsers(store)).toBe(created);
          await Bun.sleep(5);
        }
        expect(await countUsers(store)).toBe(created + 1);
      }
    });
    // A standby shows the changes that the primary has numbered.
    const numbered = await withStore(primary.url, feedOf);
    const asServer = { mode: "serve", create: false } as const;
    // A command would number the change when it ends.
    await withStore(primary.url, (store) => addUsers(store, 1), asServer);
    await withStore(
      standby.url,
      async (store) => {
        while ((await countUsers(store)) < 4) await Bun.sleep(10);
        // It cannot number the last one.
        expect(await feedOf(store)).toEqual(numbered);
        await expectRejection(store.checkUsable(), "unavailable", READ_ONLY);
      },
      asServer,
    );
    standby.stop("fast");
    const before = await withStore(primary.url, async (store) => {
      await addUsers(store, 3);
      return feedOf(store);
    });
    expect(before.last).toBe(7);
    primary.stop("immediate");
    await standby.start();
    await runOn(standby.url, "select pg_promote()");
    await withStore(standby.url, async (store) => {
      await addUsers(store, 4);
      const { feed, last } = await feedOf(store);
      expect(last).toBe(8);
      expect(feed).not.toBe(before.feed);
      const page = { limit: 1, offset: 0, after: before.last, feed: before.feed };
      await expectRejection(Promise.resolve(store.changes.list(page)), "changes_reset");
      expect(await store.check()).toEqual([]);
    });
  },
  180_000,
);

// A dump: the transactions of another cluster have other numbers.
const token = { hash: "a".repeat(64), name: "shop", scope: "write", expires_at: null } as const;
const firstPage = { limit: 1, offset: 0 };

/** Statements that begin as many transactions, each with a separate number. */
const passTransactions = (count: number) => `
  do $$
  begin
    for at in 1 .. ${count} loop
      perform txid_current();
      commit;
    end loop;
  end
  $$
`;

/**
 * Writes a token, users and orders. Some of their changes have no id, also one of a transaction that was open when others
 * were numbered.
 */
async function fill(databaseUrl: string): Promise<void> {
  await withStore(databaseUrl, async (store) => {
    await store.tokens.create(token);
    for (let at = 0; at < 5; at += 1) {
      const { id } = await newUser(store);
      await store.orders.create(orderFields(id), null);
    }
    await store.changes.list(firstPage);
  });
  await withStore(databaseUrl, async (store) => {
    await newUser(store);
    await store.orders.update(1, setPaid, null);
    await store.users.update(1, rename, null);
    await store.users.update(1, rename, null);
  });
}

/** Changes without ids are in the dump as well: they are numbered when they are read. */
async function stateOf({ changes, users, orders }: Store) {
  const { records, feed, last } = await changes.list({ limit: 1000, offset: 0 });
  const { total: paid } = await orders.list({ ...firstPage, status: ["paid"] });
  return { text: records, feed, last, users: (await users.list(firstPage)).total, paid };
}

/** Copies a database with pg_dump and psql. @throws {Error} if either reports an error */
async function restore(from: string, to: string, options: readonly string[]): Promise<void> {
  const dump = Bun.spawnSync([join(programs, "pg_dump"), ...options, from]);
  const args = ["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", to];
  const load = Bun.spawnSync([join(programs, "psql"), ...args], { stdin: dump.stdout });
  const errors = `${dump.stderr}${load.stderr}`;
  if (dump.exitCode !== 0 || load.exitCode !== 0) throw new Error(errors);
}

test.if(["pg_dump", "psql"].every(hasProgram))(
  "a dump has exact totals and all changes in another cluster, and its data in tables of the same",
  async () => {
    await using source = await startServer(null, { autovacuum: "off" });
    await using other = await startServer(null, { autovacuum: "off" });
    // Its transactions have higher numbers than those of the other one.
    await runOn(source.url, passTransactions(5_000));
    for (const isDataOnly of [false, true]) {
      const from = await source.createDatabase();
      await fill(from);
      const to = await (isDataOnly ? source : other).createDatabase();
      if (isDataOnly) await withStore(to, async () => {}, { mode: "serve" });
      await restore(from, to, isDataOnly ? ["--data-only"] : []);
      if (isDataOnly) {
        expect(await runOn(to, "select from change_feed")).toHaveLength(2);
        const checking = withStore(to, (store) => store.check());
        await expectRejection(checking, "operator", /was restored: run `user-api migrate`/);
      }
      const dumped = await withStore(from, stateOf);

      // A command numbers no changes, but a server does when it starts.
      await withStore(to, (store) => newUser(store));
      await withStore(
        to,
        async (store) => {
          const restored = await stateOf(store);
          expect(restored).toMatchObject({ last: dumped.last + 1, users: 7, paid: 1 });
          // Those that were restored come first, in the order of their transactions.
          expect(restored.text).toStartWith(`${dumped.text},`);
          expect(restored.feed).not.toBe(dumped.feed);
          expect(await store.check()).toEqual([]);
          expect((await store.tokens.list()).map(({ name }) => name)).toEqual(["shop"]);
          await newUser(store);
          const { feed } = restored;
          expect(await stateOf(store)).toMatchObject({ feed, last: dumped.last + 2 });
          // The numbers of the restored transactions come again.
          await runOn(to, passTransactions(6_000));
          await newUser(store);
          await store.orders.update(2, setPaid, null);
          expect(await stateOf(store)).toMatchObject({ last: dumped.last + 4, users: 9, paid: 2 });
          expect(await store.check()).toEqual([]);
        },
        { mode: "serve" },
      );
    }
  },
  180_000,
);
