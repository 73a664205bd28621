// A dump has exact totals wherever it is restored: the transactions of another cluster have other numbers.
import { afterAll, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { SQL } from "bun";
import { connect } from "../../src/postgres/connection.ts";
import { FOLD_LOCK, foldCounts } from "../../src/postgres/counts.ts";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields, setPaid } from "../contract/open.ts";
import { isLong } from "../long.ts";
import { withStore } from "../open-store.ts";
import { findPrograms, type Instance, makeInstance, runOn } from "./instance.ts";

const programs = findPrograms() ?? "";
const possible = ["pg_dump", "psql"].every((name) => existsSync(join(programs, name)));
const token = { hash: "a".repeat(64), name: "shop", scope: "write", expires_at: null } as const;
const firstPage = { limit: 1, offset: 0 };

interface Servers {
  /** Its transactions have higher numbers than those of the other one. */
  readonly source: Instance;
  readonly other: Instance;
}

async function startServer(): Promise<Instance> {
  const instance = await makeInstance(programs, { fsync: "off", autovacuum: "off" });
  await instance.start();
  return instance;
}

async function startServers(): Promise<Servers> {
  const [source, other] = await Promise.all([startServer(), startServer()]);
  await runOn(source.url, passTransactions(5_000));
  return { source, other };
}

const starting: Promise<Servers> | null = possible ? startServers() : null;

afterAll(async () => {
  const servers = await starting;
  await servers?.source[Symbol.asyncDispose]();
  await servers?.other[Symbol.asyncDispose]();
});

function passTransactions(count: number): string {
  return `
    do $$
    begin
      for at in 1 .. ${count} loop
        perform txid_current();
        commit;
      end loop;
    end
    $$
  `;
}

async function createDatabase({ url }: Instance): Promise<string> {
  const name = `test_${crypto.randomUUID().replaceAll("-", "")}`;
  await runOn(url, `create database ${name}`);
  return Object.assign(new URL(url), { pathname: name }).href;
}

async function fold(databaseUrl: string): Promise<void> {
  const db = connect({ databaseUrl });
  while ((await foldCounts(db)) > 0);
  await db.close();
}

/** Writes a token, users and orders, of which some are folded. @returns the number of users */
async function fill(databaseUrl: string): Promise<number> {
  await withStore(databaseUrl, async (store) => {
    await store.tokens.create(token);
    for (let at = 0; at < 5; at += 1) {
      const { id } = await newUser(store);
      await store.orders.place(orderFields(id), null);
    }
  });
  await fold(databaseUrl);
  await withStore(databaseUrl, async (store) => {
    await newUser(store);
    await store.orders.update(1, setPaid, null);
  });
  return 6;
}

/** Changes without ids are in the dump as well: they are numbered when they are read. */
async function changesOf(store: Store) {
  const { records, feed, last } = await store.changes.list({ limit: 1000, offset: 0 });
  return { text: records, feed, last };
}

/** Copies a database with pg_dump and psql. @throws {Error} if either reports an error */
async function restore(from: string, to: string, options: readonly string[]): Promise<void> {
  const dump = Bun.spawnSync([join(programs, "pg_dump"), ...options, from]);
  const args = ["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", to];
  const load = Bun.spawnSync([join(programs, "psql"), ...args], { stdin: dump.stdout });
  const errors = `${dump.stderr}${load.stderr}`;
  if (dump.exitCode !== 0 || load.exitCode !== 0) throw new Error(errors);
}

const dumps = [
  { what: "all", options: [], createsTables: true },
  { what: "the data", options: ["--data-only"], createsTables: false },
  {
    what: "the data without triggers",
    options: ["--data-only", "--disable-triggers"],
    createsTables: false,
  },
];

describe.if(possible)("a dump", () => {
  test.each(
    dumps.flatMap((dump) => [
      { ...dump, where: "another" as const },
      ...(isLong ? [{ ...dump, where: "the same" as const }] : []),
    ]),
  )(
    "of $what has exact totals when it is restored into $where cluster",
    async ({ options, createsTables, where }) => {
      if (starting === null) throw new Error("there is no PostgreSQL");
      const { source, other } = await starting;
      const from = await createDatabase(source);
      const users = await fill(from);
      const to = await createDatabase(where === "another" ? other : source);
      if (!createsTables) await withStore(to, async () => {});
      await restore(from, to, options);
      const dumped = await withStore(from, (store) => changesOf(store));

      // No process folds, although all numbers of the restored transactions are passed.
      await using locked = new SQL(to, { max: 1 });
      await locked.unsafe(`select pg_advisory_lock(${FOLD_LOCK})`);
      await withStore(to, async (store) => {
        expect(await store.check()).toEqual([]);
        const restored = await changesOf(store);
        expect(restored.text).toBe(dumped.text);
        expect(restored.feed).not.toBe(dumped.feed);
        expect((await store.tokens.list()).map(({ name }) => name)).toEqual(["shop"]);
        await newUser(store);
        expect(await changesOf(store)).toMatchObject({
          feed: restored.feed,
          last: dumped.last + 1,
        });
        await runOn(to, passTransactions(6_000));
        await newUser(store);
        await store.orders.update(2, setPaid, null);
        expect((await store.users.list(firstPage)).total).toBe(users + 2);
        expect((await store.orders.list({ ...firstPage, status: "paid" })).total).toBe(2);
        expect(await store.check()).toEqual([]);
      });
      // Not by closing the connection: PostgreSQL may release the lock later than that.
      await locked.unsafe(`select pg_advisory_unlock(${FOLD_LOCK})`);
      await fold(to);
      const [row] = await runOn<{ rows: number }>(
        to,
        "select count(*)::integer as rows from counts",
      );
      expect(row?.rows).toBe(1);
      await withStore(to, async (store) => {
        await newUser(store);
        expect((await store.users.list(firstPage)).total).toBe(users + 3);
        expect(await store.check()).toEqual([]);
      });
    },
    30_000,
  );
});
