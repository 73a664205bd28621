import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { SCHEMA_VERSION } from "../../src/sqlite/file/migrate.ts";
import { cluster, makeHarness as makePostgres } from "../postgres/postgres-harness.ts";
import { runSql } from "../sqlite/open-database.ts";
import { failed, makeHarness } from "./harness.ts";

test("migrate says so when the schema is up to date, and rejects --distribute for a SQLite file", async () => {
  using world = makeHarness();
  const server = await world.serve();
  expect(await world.run("migrate")).toEqual(
    failed(`Cannot open ${world.path}: the database is in use by another server`),
  );
  await server.stop();
  const stdout = `The schema of ${world.path} is up to date\n`;
  expect(await world.run("migrate")).toEqual({ code: 0, stdout, stderr: "" });
  const line = `Cannot distribute ${world.path}: --distribute is for PostgreSQL with Citus`;
  expect(await world.run("migrate", "--distribute")).toEqual({ ...failed(line), code: 2 });
});

test.if(cluster !== null)("migrate rejects --distribute when there is no Citus", async () => {
  await using postgres = await makePostgres();
  using world = makeHarness({ environment: { DATABASE_URL: postgres.url } });
  const { code, stderr } = await world.run("migrate", "--distribute");
  expect(code).toBe(1);
  expect(stderr).toEndWith(": it needs the extension citus, and workers in pg_dist_node\n");
  const [found] = await postgres.run("select to_regclass('order_index') as index");
  expect(found).toEqual({ index: null });
});

test("backup copies a database whose schema is newer, and every other command says what to do", async () => {
  using world = makeHarness();
  await world.run("token", "create", "a");
  const version = SCHEMA_VERSION + 1;
  runSql(world.path, `drop table users; drop table tokens; pragma user_version = ${version}`);
  const before = readFileSync(world.path);
  const copy = world.at("copy.db");
  const { code, stdout, stderr } = await world.run("backup", copy);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toBe(
    `Backed up a database whose schema has version ${version} to ${copy} (0.1 MB, its rows are not verified)\n`,
  );
  const why = `the schema has version ${version}, but this program supports versions up to ${SCHEMA_VERSION}: use a newer release`;
  for (const command of [
    ...["serve", "migrate", "check", "token list", "token create b", "token revoke a"],
    ...["export users", "import users", "changes", `copy --to ${world.at("other.db")}`],
  ]) {
    const outcome = await world.feed("", ...command.split(" "));
    expect(outcome, command).toEqual(failed(`Cannot open ${world.path}: ${why}`));
  }
  const restored = await world.run("restore", copy);
  expect(restored).toEqual(failed(`Cannot restore ${copy}: ${why}`));
  expect(readFileSync(world.path).equals(before)).toBe(true);
});
