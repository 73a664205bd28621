// Guarantees between replicas: two stores on one database.
import { describe, expect, test } from "bun:test";
import { newUser, outcomesOf, userFields } from "../contract/open.ts";
import { cluster, makeHarness, patient } from "./postgres-harness.ts";

const KEYS = 100;
const POSTS = 8;

describe.if(cluster !== null)("two replicas", () => {
  test("create makes one user an email when each is posted many times concurrently, in another order", async () => {
    await using world = await makeHarness();
    const open = () => world.open({ databaseUrl: world.url + patient });
    const replicas = [await open(), await open()] as const;
    const creates = Array.from({ length: KEYS * POSTS }, (_, at) => {
      const isFirst = at % 2 === 0;
      const n = Math.floor(at / POSTS);
      const email = `${isFirst ? n : KEYS - 1 - n}@example.com`;
      return (isFirst ? replicas[0] : replicas[1]).users.create(userFields({ email }), null);
    });
    const codes = await outcomesOf(creates);
    expect(codes.filter((code) => code === "new")).toHaveLength(KEYS);
    expect(codes.filter((code) => code === "email_taken")).toHaveLength(KEYS * (POSTS - 1));
    expect((await replicas[0].users.list({ limit: 1, offset: 0 })).total).toBe(KEYS);
    expect(await replicas[1].check()).toEqual([]);
  }, 30_000);

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
      const results = await one.bulk.users.import(fresh.slice(at, at + 100));
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
});
