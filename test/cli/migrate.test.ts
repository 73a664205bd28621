import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { migrate, migrations, SCHEMA_VERSION } from "../../src/sqlite/migrate.ts";
import { failed, type Harness, makeHarness, parsedLines } from "./harness.ts";

const OLDER_VERSION = SCHEMA_VERSION - 1;

/** Creates a database with the schema before the newest one. */
async function makeOlder(world: Harness): Promise<void> {
  await Bun.write(world.path, "");
  using db = new Database(world.path);
  migrate(db, migrations.slice(0, OLDER_VERSION));
}

test("migrate brings an older schema up to date, and says so when there is nothing to do", async () => {
  using world = makeHarness();
  await makeOlder(world);
  expect(await world.run("migrate")).toEqual({
    code: 0,
    stdout: `Migrated the schema of ${world.path} from version ${OLDER_VERSION} to ${SCHEMA_VERSION}\n`,
    stderr: "",
  });
  expect(existsSync(`${world.path}.v${OLDER_VERSION}`)).toBe(true);
  const stdout = `The schema of ${world.path} is up to date\n`;
  expect(await world.run("migrate")).toEqual({ code: 0, stdout, stderr: "" });
});

test("migrate fails when a server is using the database", async () => {
  using world = makeHarness();
  const server = await world.serve();
  expect(await world.run("migrate")).toEqual(
    failed(`Cannot open ${world.path}: the database is in use by another server`),
  );
  await server.stop();
});

test("serve migrates an older schema, and logs it", async () => {
  using world = makeHarness();
  await makeOlder(world);
  const server = await world.serve();
  const { stdout } = await server.stop();
  expect(parsedLines(stdout)[0]).toMatchObject({
    level: "info",
    event: "schema migrated",
    from: OLDER_VERSION,
    to: SCHEMA_VERSION,
  });
});

test.each(["token create a", "token revoke a", "import users", "seed"])(
  "%s names the command that migrates, and changes nothing, when the schema is older",
  async (command) => {
    using world = makeHarness();
    await makeOlder(world);
    const before = readFileSync(world.path);
    const outcome = await world.feed("", ...command.split(" "));
    const needs = `this program needs version ${SCHEMA_VERSION}: run \`user-api migrate\` on this database`;
    expect(outcome).toEqual(
      failed(`Cannot open ${world.path}: the schema has version ${OLDER_VERSION}, but ${needs}`),
    );
    expect(readFileSync(world.path).equals(before)).toBe(true);
    expect(existsSync(`${world.path}.v${OLDER_VERSION}`)).toBe(false);
  },
);
