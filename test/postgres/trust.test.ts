// What another role, or an operator, can do to a database so that it must not be served as it is.
import { describe, expect, test } from "bun:test";
import { all, newUser } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { cluster, makeHarness } from "./postgres-harness.ts";

/** By what ends it, as the message says. */
const damages: Readonly<Record<string, string>> = {
  "revoke create on schema public from public": "grant create on schema public to public",
  "revoke create on schema public from OTHER": "grant create on schema public to OTHER",
  "alter schema OURS owner to OURS":
    "create schema OURS authorization OTHER; grant usage on schema OURS to OURS",
  "alter table users no force row level security":
    "alter table users enable row level security, force row level security",
};

/** A database with a user, and the tables of a role that is no superuser. */
async function makeRoles() {
  const world = await makeHarness(true);
  const [ours, other] = ["ours", "other"].map((name) =>
    `${name}_${Bun.randomUUIDv7("hex")}`.replaceAll("-", ""),
  );
  const run = (sql: string) =>
    world.run(sql.replaceAll("OURS", `${ours}`).replaceAll("OTHER", `${other}`));
  await run(
    "create role OURS login; create role OTHER login; grant create on schema public to OURS",
  );
  const databaseUrl = Object.assign(new URL(world.url), { username: ours }).href;
  const open = () => world.open({ databaseUrl, mode: "serve" });
  const store = await open();
  await newUser(store);
  return {
    store,
    run,
    open,
    async [Symbol.asyncDispose]() {
      await run("drop owned by OURS, OTHER cascade; drop role OURS, OTHER");
      await world[Symbol.asyncDispose]();
    },
  };
}

describe.if(cluster !== null)("a database of another role", () => {
  test.each(Object.entries(damages))("is opened only after %s", async (remedy, damage) => {
    await using world = await makeRoles();
    await world.run(damage);
    const { message } = await expectRejection(world.open(), "operator");
    expect(message.replace(/(ours|other)_\w+/g, (_, role) => role.toUpperCase())).toContain(
      `run "${remedy}"`,
    );
    await world.run(remedy);
    expect((await (await world.open()).users.list(all)).total).toBe(1);
  });

  test("is not opened when a table of another schema hides one, or another role owns one", async () => {
    await using world = await makeRoles();
    await world.run("create schema OURS authorization OURS; create table OURS.tokens ()");
    await expectRejection(world.open(), "operator", /tokens is not in the schema of user_api/);
    await world.run("drop schema OURS cascade; alter table user_api owner to OTHER");
    await expectRejection(world.open(), "operator", /the tables belong to another user/);
  });

  test("is not healthy, and has no shorter list, when row-level security hides rows", async () => {
    await using world = await makeRoles();
    await world.run("alter table users enable row level security, force row level security");
    const listing = Promise.resolve(world.store.users.list(all));
    await expectRejection(listing, "unavailable", /denies the service a permission/);
    const { cause } = await expectRejection(world.store.checkUsable(), "unavailable");
    expect(`${cause}`).toContain("row-level security hides rows");
  });
});
