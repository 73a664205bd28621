// Guarantees between replicas: two stores on one database.
import { describe, expect, test } from "bun:test";
import { AppError } from "../../src/error.ts";
import { migrations } from "../../src/postgres/migrate.ts";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields, setFields, userFields } from "../contract/open.ts";
import { ifMatch } from "../preconditions.ts";
import { cluster, makeHarness } from "./postgres-harness.ts";

const KEYS = 100;
const POSTS = 8;
const ROUNDS = 30;
const EDITS = 4;

function codeOf(result: PromiseSettledResult<unknown>): string {
  if (result.status === "fulfilled") return "done";
  return result.reason instanceof AppError ? result.reason.code : String(result.reason);
}

describe.if(cluster !== null)("two replicas", () => {
  test("place creates one order per key when each key is used by many concurrent calls", async () => {
    await using world = await makeHarness();
    const replicas = [await world.open(), await world.open()] as const;
    const { id } = await newUser(replicas[0]);
    const owner = "a".repeat(64);
    const fingerprint = "f".repeat(64);
    const posts = Array.from({ length: KEYS * POSTS }, (_, at) => {
      const key = { owner, key: `key-${Math.floor(at / POSTS)}`, fingerprint };
      return (replicas[at % 2] ?? replicas[0]).orders.place(orderFields(id), key);
    });
    const placed = await Promise.all(posts);
    expect(placed.filter(({ replayed }) => !replayed)).toHaveLength(KEYS);
    for (let at = 0; at < placed.length; at += POSTS) {
      const ofKey = placed.slice(at, at + POSTS).map(({ record }) => record);
      expect(ofKey).toEqual(ofKey.map(() => ofKey[0] as never));
    }
    expect((await replicas[1].orders.list({ limit: 1, offset: 0 })).total).toBe(KEYS);
    expect(await replicas[1].check()).toEqual([]);
  }, 30_000);

  test("create makes one user an email when each is posted many times concurrently, in another order", async () => {
    await using world = await makeHarness();
    const replicas = [await world.open(), await world.open()] as const;
    const creates = Array.from({ length: KEYS * POSTS }, (_, at) => {
      const isFirst = at % 2 === 0;
      const n = Math.floor(at / POSTS);
      const email = `${isFirst ? n : KEYS - 1 - n}@example.com`;
      return (isFirst ? replicas[0] : replicas[1]).users.create(userFields({ email }), null);
    });
    const codes = (await Promise.allSettled(creates)).map(codeOf);
    expect(codes.filter((code) => code === "done")).toHaveLength(KEYS);
    expect(codes.filter((code) => code === "email_taken")).toHaveLength(KEYS * (POSTS - 1));
    expect((await replicas[0].users.list({ limit: 1, offset: 0 })).total).toBe(KEYS);
    expect(await replicas[1].check()).toEqual([]);
  }, 30_000);

  test.each(["users", "orders"] as const)(
    "%s.update applies one edit per version when several are concurrent",
    async (table) => {
      await using world = await makeHarness();
      const replicas = [await world.open(), await world.open()] as const;
      const { id } = await newUser(replicas[0]);
      await replicas[0].orders.place(orderFields(id), null);
      const update = ({ users, orders }: Store, version: number) =>
        table === "users"
          ? users.update(id, () => userFields(), ifMatch(version))
          : orders.update(1, setFields({ metadata: { v: `${version}` } }), ifMatch(version));
      for (let version = 1; version <= ROUNDS; version += 1) {
        const edits = Array.from({ length: EDITS }, (_, at) =>
          update(replicas[at % 2] ?? replicas[0], version),
        );
        // Checked in each round: in a sum, a round with two successes would hide one with none.
        const codes = (await Promise.allSettled(edits)).map(codeOf).sort();
        expect([version, ...codes]).toEqual([
          version,
          "done",
          "version_mismatch",
          "version_mismatch",
          "version_mismatch",
        ]);
      }
      expect((await replicas[1][table].get(1))?.version).toBe(ROUNDS + 1);
    },
    30_000,
  );

  test("import assigns no id twice while another replica creates users", async () => {
    await using world = await makeHarness();
    const [one, other] = [await world.open(), await world.open()];
    let stop = false;
    const made: number[] = [];
    const creating = (async () => {
      while (!stop) made.push((await newUser(other)).id);
    })();
    const fresh = Array.from({ length: 2000 }, () => userFields());
    const ids = new Set<string>();
    for (let at = 0; at < fresh.length; at += 100) {
      const results = await one.bulk.users.import(fresh.slice(at, at + 100), false);
      for (const { outcome } of results) ids.add(outcome);
    }
    stop = true;
    await creating;
    expect([...ids]).toEqual(["created"]);
    const { total } = await one.users.list({ limit: 1, offset: 0 });
    expect(total).toBe(fresh.length + made.length);
    expect(new Set(made).size).toBe(made.length);
    // No id was skipped either.
    const [last] = await world.run<{ last: string }>("select max(id) as last from users");
    expect(Number(last?.last)).toBe(total);
    expect(await one.check()).toEqual([]);
  }, 30_000);

  test("open creates the schema once when many replicas open an empty database concurrently", async () => {
    await using world = await makeHarness(true);
    await Promise.all(Array.from({ length: 6 }, () => world.open()));
    expect(await world.run("select schema_version from user_api")).toEqual([
      { schema_version: migrations.length },
    ]);
  }, 30_000);
});
