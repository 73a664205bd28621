// Guarantees between replicas: two stores on one database.
import { describe, expect, test } from "bun:test";
import type { UserStore } from "../../src/domain/user.ts";
import { createContext } from "../../src/postgres/engine/context.ts";
import { oneServer } from "../../src/postgres/server/placement.ts";
import { createUserStore } from "../../src/postgres/tables/users.ts";
import { newUser, outcomesOf, rename, userFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { ifMatch } from "../support/preconditions.ts";
import { cluster, type Harness, makeHarness, patient } from "./postgres-harness.ts";
import { recordStatements } from "./recorded.ts";

const KEYS = 40;
const POSTS = 8;

/** @returns users of another replica, which does work before its first statement with this text */
function usersBefore(world: Harness, text: string, work: () => Promise<unknown>): UserStore {
  let isFirst = true;
  const { db } = recordStatements(world.connect(), (statement) => {
    if (!statement.includes(text) || !isFirst) return;
    isFirst = false;
    return work();
  });
  return createUserStore(createContext({ db, placement: oneServer, now: () => new Date() }));
}

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
  });

  test("updates of one user are made once per key when both replicas get them", async () => {
    await using world = await makeHarness();
    const open = () => world.open({ databaseUrl: world.url + patient });
    const replicas = [await open(), await open()] as const;
    const { id } = await newUser(replicas[0]);
    const update = (at: number) => {
      const key = { owner: "a", key: `${Math.floor(at / 4)}`, fingerprint: "f" };
      const { users } = at % 2 === 0 ? replicas[0] : replicas[1];
      return users.update(id, rename, null, at % 8 < 4 ? key : null) as Promise<{
        replayed?: true;
      }>;
    };
    const outcomes: string[] = [];
    const updates = Array(200).keys();
    // Few at a time: on a busy machine, an update would wait for too long behind all the others.
    const client = async () => {
      for (const at of updates) outcomes.push(...(await outcomesOf([update(at)])));
    };
    await Promise.all(Array.from({ length: POSTS }, client));
    expect(outcomes.filter((outcome) => outcome === "new")).toHaveLength(125);
    expect(outcomes.filter((outcome) => outcome === "replayed")).toHaveLength(75);
    expect((await replicas[0].users.get(id))?.version).toBe(126);
    expect(await replicas[1].check()).toEqual([]);
  });

  test("an update with a key follows a change that came before its read in the feed", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const { id } = await newUser(store);
    const users = usersBefore(world, "from users", () => store.users.update(id, rename, null));
    const key = { owner: "a", key: "1", fingerprint: "f" };
    expect((await users.update(id, rename, null, key))?.version).toBe(3);
    expect(await store.check()).toEqual([]);
  });

  test("a write is replayed when another replica makes it with the same key after the look-up", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const { id } = await newUser(store);
    const keyOf = (key: string) => ({ owner: "a", key, fingerprint: "f" });
    const update = (users: UserStore) => users.update(id, rename, ifMatch(1), keyOf("1"));
    const remove = (users: UserStore) => users.remove(id, ifMatch(2), keyOf("2"));
    for (const write of [update, remove]) {
      const users = usersBefore(world, "from users", () => Promise.resolve(write(store.users)));
      expect(await write(users)).toMatchObject({ version: 2, replayed: true });
    }
  });

  test.each([
    ["after it was read", "for key share", true],
    ["before it is stored", "insert into idempotency_keys", false],
  ])(
    "a key of an update without changes keeps nothing of a user that another replica deletes %s",
    async (_when, text, isDone) => {
      await using world = await makeHarness();
      const store = await world.open();
      const { id } = await newUser(store);
      let removal: Promise<unknown> | undefined;
      const users = usersBefore(world, text, () => {
        removal = Promise.resolve(store.users.remove(id, null));
        return isDone ? removal : world.untilWaiting();
      });
      const key = { owner: "a", key: "1", fingerprint: "f" };
      await users.update(id, (user) => user, null, key);
      await removal;
      expect(await store.users.get(id)).toBeNull();
      expect(await world.run("select record from idempotency_keys")).toEqual([]);
    },
  );

  test("an update is rejected when another user gets its email after it was found free", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const { id } = await newUser(store);
    const email = "new@example.com";
    const users = usersBefore(world, "update users", () => newUser(store, { email }));
    const update = users.update(id, (user) => ({ ...user, email }), null);
    await expectRejection(update, "email_taken");
    expect((await store.users.get(id))?.version).toBe(1);
  });
});
