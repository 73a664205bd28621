// Runs `backup` and `restore` of the binary while a server has clients. A backup must contain every write that was
// acknowledged before it started, and no request may fail.
import { expect, test } from "bun:test";
import { newEmail, newUser } from "../http/make.ts";
import { againstBinary, startServer, type TestServer } from "../http/server.ts";
import { runBinary } from "../support/program.ts";

async function run(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runBinary(args);
  expect([code, stderr]).toEqual([0, ""]);
  return stdout;
}

/** Creates users and their orders from several clients until stopped. */
function startClients(server: TestServer) {
  const acknowledged = { users: new Set<number>(), orders: new Set<number>() };
  const statuses = new Set<number>();
  let stopping = false;
  const clients = Array.from({ length: 8 }, async () => {
    while (!stopping) {
      const user = await server.call("POST", "/users", { body: { email: newEmail() } });
      statuses.add(user.status);
      acknowledged.users.add(user.json.data.id);
      const items = [{ sku: "a", quantity: 1, unit_price: 1 }];
      const body = { user_id: user.json.data.id, currency: "EUR", items };
      const order = await server.call("POST", "/orders", { body });
      statuses.add(order.status);
      acknowledged.orders.add(order.json.data.id);
      await Bun.sleep(5);
    }
  });
  return {
    acknowledged,
    statuses,
    /** Waits until the clients have created 100 more users. */
    async untilMore() {
      const enough = acknowledged.users.size + 100;
      while (acknowledged.users.size < enough) await Bun.sleep(5);
    },
    async stop() {
      stopping = true;
      await Promise.all(clients);
    },
  };
}

async function idsOf(server: TestServer, list: "users" | "orders"): Promise<Set<number>> {
  const ids = new Set<number>();
  for (let offset = 0; ; offset += 1000) {
    const { json } = await server.call("GET", `/${list}?limit=1000&offset=${offset}`);
    for (const { id } of json.data) ids.add(id);
    if (offset + 1000 >= json.meta.total) {
      expect(ids.size).toBe(json.meta.total);
      return ids;
    }
  }
}

test.if(againstBinary)(
  "restore restores every write that was acknowledged before the backup started",
  async () => {
    await using server = await startServer();
    for (let i = 0; i < 100; i += 1) await newUser(server, { metadata: { a: "x".repeat(500) } });
    const clients = startClients(server);
    await clients.untilMore();
    const before = {
      users: new Set(clients.acknowledged.users),
      orders: new Set(clients.acknowledged.orders),
    };
    const copy = `${server.database}.copy`;
    expect(await run("backup", copy, "--database-url", server.database)).toContain("Backed up");
    await clients.untilMore();
    await clients.stop();
    expect([...clients.statuses]).toEqual([201]);
    const all = await idsOf(server, "users");
    await server.stop();

    const restored = await run("restore", copy, "--database-url", server.database);
    expect(restored).toContain("The previous database was kept as");
    expect(await run("check", "--database-url", server.database)).toBe("ok\n");
    await server.restart();
    const users = await idsOf(server, "users");
    const orders = await idsOf(server, "orders");
    expect(before.users.difference(users).size).toBe(0);
    expect(before.orders.difference(orders).size).toBe(0);
    expect(users.size).toBeLessThan(all.size);
  },
  30_000,
);
