import { expect, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import type { OrderStore } from "../../src/domain/order.ts";
import { newOrder, newUser } from "../http/make.ts";
import { startServer } from "../http/server.ts";
import { createToken, exportOf, failed, lines, makeHarness, openWith } from "./harness.ts";

const items = [{ sku: "a", quantity: 1, unit_price: 5 }];
const metadata = { address: "Main Street" };

const users = lines([
  { email: "Ann@example.com", reference: "ann", name: "Ann" },
  { email: "bob@example.com", reference: "bob", metadata: { phone: "1" } },
]);

/** Two people with orders. @param update comes before an update of an order by a command */
async function makePeople(
  counts: { ann: number; bob: number },
  update: (orders: OrderStore, id: number) => unknown = () => {},
) {
  const openStore = openWith(({ orders }) => ({
    orders: {
      ...orders,
      async update(...args) {
        await update(orders, args[0]);
        return orders.update(...args);
      },
    },
  }));
  const world = makeHarness({ openStore });
  await world.feed(users, "import", "users");
  for (const [user, length] of Object.entries(counts)) {
    const fields = { user_reference: user, currency: "EUR", items, metadata };
    const orders = Array.from({ length }, (_, at) => ({ ...fields, reference: `${user} ${at}` }));
    await world.feed(lines(orders), "import", "orders");
  }
  return world;
}

test("person export prints all orders of the user when they are more than a page, and nothing of others", async () => {
  using world = await makePeople({ ann: 2100, bob: 1 });
  const { code, stdout, stderr } = await world.run("person", "export", "ANN@EXAMPLE.COM");
  expect([code, stderr, stdout.split("\n").length]).toEqual([0, "", 2100 + 2101 + 4]);
  const [ann, bob] = await exportOf(world, "users");
  const orders = await exportOf(world, "orders");
  const all = (await world.run("changes")).stdout.trim().split("\n");
  const changes = all.map((line) => JSON.parse(line));
  expect(JSON.parse(stdout)).toEqual({
    ...{ user: ann, orders: orders.slice(0, 2100) },
    changes: [changes[0], ...changes.slice(2, 2102)],
  });
  const other = JSON.parse((await world.run("person", "export", `${bob.id}`)).stdout);
  expect(other).toEqual({
    ...{ user: bob, orders: orders.slice(2100) },
    changes: [changes[1], ...changes.slice(2102)],
  });
});

const page = await Bun.file(`${import.meta.dir}/../../docs/personal-data.md`).text();
/** What every value of the user who is erased contains. */
const MARK = "ann@example.com";

test("person erase overwrites a user with all orders while a server runs, and changes nothing when it is repeated", async () => {
  await using server = await startServer();
  using world = makeHarness({ environment: { DATABASE_URL: server.database } });
  const [bob, headers] = [await newUser(server), { "Idempotency-Key": "first" }];
  const body = { email: MARK, reference: "ann", name: MARK, metadata: { nickname: MARK } };
  const register = async () => (await server.call("POST", "/users", { body, headers })).json.data;
  const ann = await register();
  const gift = { metadata: { gift: MARK } };
  const placed = [await newOrder(server, ann.id, gift), await newOrder(server, ann.id, gift)];
  const others = [bob, await newOrder(server, bob.id, { metadata })];
  const { last } = (await server.call("GET", "/changes")).json.meta;
  expect(page).toContain(`\`\`\`sh\nuser-api person export ${MARK} >`);
  const { stdout } = await world.run("person", "export", MARK.toUpperCase());
  expect(JSON.parse(stdout)).toMatchObject({ user: ann, orders: placed });

  expect(page).toContain(`\`\`\`sh\nuser-api person erase ${MARK}\n`);
  const erased = await world.run("person", "erase", MARK.toUpperCase());
  expect(erased).toMatchObject({ code: 0, stderr: "" });
  expect(erased.stdout).toStartWith(`Erased user ${ann.id} and the metadata of 2 orders. `);
  const [users, orders] = [await exportOf(world, "users"), await exportOf(world, "orders")];
  const after = { metadata: {}, version: 2, updated_at: expect.any(String) };
  const email = expect.stringMatching(/^2-[0-9a-f]{8}@erased.invalid$/);
  expect(users).toEqual([others[0], { ...ann, ...after, email, name: null }]);
  expect(orders).toEqual([...placed.map((order) => ({ ...order, ...after })), others[1]]);
  // Also for a request that is repeated.
  expect(await register()).toEqual(users[1]);

  await world.run("person", "erase", `${ann.id}`);
  await world.feed(lines([body]), "import", "users", "--update");
  await world.feed(lines([{ ...placed[0], ...gift }]), "import", "orders", "--update");
  const { data } = (await server.call("GET", `/changes?after=${last}`)).json;
  const ofOrder = ["order.updated", null, ["metadata"]];
  const ofUser = ["user.updated", null, ["email", "name", "metadata"]];
  const changes = data.map(({ type, token, fields }: any) => [type, token, fields]);
  expect(changes).toEqual([ofOrder, ofOrder, ofUser]);
  expect((await world.run("backup", world.at("b.db"))).code).toBe(0);
  for (const text of [await Bun.file(world.at("b.db")).text(), server.output])
    expect(text.toLowerCase()).not.toContain(MARK);
});

test("person commands fail with one line when no user has the email or the id", async () => {
  using world = makeHarness();
  await createToken(world, "a");
  for (const command of ["export", "erase"]) {
    for (const person of ["ann@example.com", "", "0", "7", "9".repeat(30), "a@b@c", "' or 1"]) {
      expect(await world.run("person", command, "--", person), person).toEqual(
        failed(`No user has the email or id ${JSON.stringify(person)}`),
      );
    }
  }
});

test("person erase can be repeated with the email when it was interrupted, and leaves an order that is moved meanwhile", async () => {
  let writes = 0;
  using world = await makePeople({ ann: 3, bob: 0 }, (orders, id) => {
    writes += 1;
    if (writes === 2) throw new AppError("unavailable", "the disk is full");
    return id === 3 && orders.update(id, (order) => ({ ...order, user_id: 2 }), null);
  });
  const erase = () => world.run("person", "erase", "ann@example.com");
  expect(await erase()).toEqual(failed(`Cannot use ${world.path}: the disk is full`));
  expect((await exportOf(world, "users"))[0].email).toBe("Ann@example.com");
  expect(await erase()).toMatchObject({ code: 0 });
  expect((await exportOf(world, "users"))[0].email).toEndWith("@erased.invalid");
  const orders = await exportOf(world, "orders");
  expect(orders.map(({ version }) => version)).toEqual([2, 2, 2]);
  expect(orders.map((order) => order.metadata)).toEqual([{}, {}, metadata]);
});
