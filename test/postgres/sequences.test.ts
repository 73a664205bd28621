// Logical replication copies rows and no sequences: the next ids must not be those of other records.
import { expect } from "bun:test";
import { newUser, orderFields } from "../contract/open.ts";
import { deleteUser, patient, test } from "./postgres-harness.ts";

const token = { hash: "a".repeat(64), name: "a", scope: "read", expires_at: null } as const;
const restart = "select setval(seqrelid, seqstart, false) from pg_sequence";
/** The feed is as another server has left it. */
const move = "update change_feed set origin = '{1,1,1}', xid = txid_current()";

for (const damage of [restart, `${restart}; ${move}; delete from orders; delete from users`])
  test(`open waits for running writes, then advances sequences that are behind and warns of each, after ${damage}`, async (world) => {
    const first = await world.open();
    await first.tokens.create(token);
    for (let at = 0; at < 3; at += 1) await newUser(first);
    await first.orders.create(orderFields(1), null);
    // Otherwise it could notice that the feed has moved, and begin another one without changes.
    await first.close();
    await world.run(`${deleteUser(3)}; ${damage}`);
    await using write = await world.hold(`
      insert into tokens (id, hash, name, scope, created_at) values (50, repeat('b', 64), 'b', 'read', 'now')
    `);
    const warnings: string[] = [];
    const opening = world.open({
      databaseUrl: world.url + patient,
      onWarning: (text) => warnings.push(text),
    });
    await world.untilWaiting();
    await write.commit();
    const store = await opening;
    const advanced = warnings.flatMap((text) => /sequence of (\w+) was/.exec(text)?.[1] ?? []);
    expect(advanced).toEqual(["users", "orders", "tokens"]);
    const { id } = await newUser(store);
    expect([id, (await store.orders.create(orderFields(id), null)).id]).toEqual([4, 2]);
    await store.tokens.create({ ...token, hash: "c".repeat(64), name: "c" });
    expect(await world.run("select from tokens where id = 51")).toHaveLength(1);
  });
