// What another role, or an operator, can do to a database so that it must not be served as it is.
import { describe, expect, test } from "bun:test";
import { all, newUser } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { runOn } from "./instance.ts";
import { cluster, makeHarness } from "./postgres-harness.ts";

/** By what ends it, as the message says. */
const damages: Readonly<Record<string, string>> = {
  "revoke create on schema public from public": "grant create on schema public to public",
  "revoke create on schema public from other": "grant create on schema public to other",
  "alter schema ours owner to ours":
    "create schema ours authorization other; grant usage on schema ours to ours",
  "alter table users no force row level security":
    "alter table users enable row level security, force row level security",
  "alter table users disable row level security":
    "alter table users owner to other, enable row level security; grant all on users to ours",
};

/** A database with a user, and the tables of the role `ours`, which is no superuser. */
async function makeRoles() {
  const world = await makeHarness(true);
  await world.run("create role ours login; create role other login");
  await world.run("grant create on schema public to ours");
  const databaseUrl = Object.assign(new URL(world.url), { username: "ours" }).href;
  const open = () => world.open({ databaseUrl });
  const store = await open();
  await newUser(store);
  async function dispose() {
    await world.run("drop owned by ours, other cascade; drop role ours, other");
    await world[Symbol.asyncDispose]();
  }
  return { store, run: world.run, open, [Symbol.asyncDispose]: dispose };
}

describe.if(cluster !== null)("a database of another role", () => {
  test("is opened only after what the message says", async () => {
    await using world = await makeRoles();
    for (const [remedy, damage] of Object.entries(damages)) {
      await world.run(damage);
      await expectRejection(world.open(), "operator", new RegExp(`: run "${remedy}"`));
      await world.run(remedy);
      await (await world.open()).close();
    }
    await world.run("alter table users owner to ours");
    // A table of another schema hides one, or another role owns one.
    await world.run(
      "drop schema ours; create schema ours authorization ours; create table ours.tokens ()",
    );
    await expectRejection(world.open(), "operator", /tokens is not in the schema of user_api/);
    await world.run("drop schema ours cascade; alter table user_api owner to other");
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

/** Functions of the service, which are called with arguments of the exact types, and of TypeScript. */
const others = ["feed_origin", "number_changes", "now", "replace"];

// PostgreSQL prefers a function of any schema of the path if its arguments match better.
test.if(cluster !== null)("SQL names the schema of each function and catalog", async () => {
  const select = "select distinct proname::text as name from pg_proc";
  const rows = await runOn<{ name: string }>(`${cluster?.url}`, select);
  const functions = new Set(rows.map(({ name }) => name));
  const unqualified: string[] = [];
  for (const path of new Bun.Glob("src/postgres/**/*.{ts,sql}").scanSync()) {
    const text = (await Bun.file(path).text()).replace(/^ *(--|\*|\/\/|\/\*).*$/gm, "");
    // A snake_case name may be one of an extension. `unnest` of several arrays is syntax.
    const calls = text.matchAll(/(?<![.:\w])(?!unnest\([\w.]+,)(?:([a-z]\w*)|\$\{\w+\})\(/g);
    const isWrong = (name: string) => functions.has(name) || name.includes("_");
    const found = [...calls].filter(([, name = "_"]) => isWrong(name) && !others.includes(name));
    found.push(...text.matchAll(/\b(?:from|join)\s+pg_(?!catalog\.)\w+|pg_(?:try_)?advisory/g));
    unqualified.push(...found.map(([what]) => `${path}: ${what}`));
  }
  expect(unqualified).toEqual([]);
});
