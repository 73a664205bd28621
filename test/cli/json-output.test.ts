// The output of commands with --json, as docs/command-line.md describes it.
import { expect, test } from "bun:test";
import manifest from "../../package.json" with { type: "json" };
import { migrations } from "../../src/postgres/whole/migrate.ts";
import { SCHEMA_VERSION } from "../../src/sqlite/file/migrate.ts";
import { runSql } from "../sqlite/open-database.ts";
import { fillDatabase } from "../support/fill.ts";
import { createToken, failed, type Harness, makeHarness, reported } from "./harness.ts";

/** Runs a command with --json. @returns its only line, and what else there is of the outcome */
async function runJson(world: Harness, ...args: string[]): Promise<{ result: any; rest: unknown }> {
  const { stdout, ...rest } = await world.run(...args, "--json");
  expect(stdout.split("\n")).toHaveLength(2);
  return { result: JSON.parse(stdout), rest: { ...rest, stdout: "" } };
}

test("token list and version print what they know as JSON", async () => {
  using world = makeHarness();
  await createToken(world, "a", "--scope", "orders:read");
  await createToken(world, "gone", "--expires", "1m");
  await world.run("token", "revoke", "gone");
  const time = "2026-11-20T18:57:03.120Z";
  const none = { expires_at: null, last_used_at: null, revoked_at: null };
  const gone = { name: "gone", scope: "write", expires_at: "2026-11-20T18:58:03.120Z" };
  expect(await runJson(world, "token", "list")).toEqual({
    result: [
      { name: "a", scope: "orders:read", state: "valid", created_at: time, ...none },
      { ...gone, state: "revoked", created_at: time, revoked_at: time, last_used_at: null },
    ],
    rest: reported(),
  });
  const schemas = { sqlite: SCHEMA_VERSION, postgresql: migrations.length };
  expect(await runJson(world, "version")).toEqual({
    result: { version: manifest.version, commit: "source", schemas },
    rest: reported(),
  });
});

test("check prints the problems as JSON, exits as without it, and prints nothing when it fails", async () => {
  using world = makeHarness();
  expect(await world.run("check", "--json")).toMatchObject({ code: 1, stdout: "" });
  await createToken(world, "a");
  expect(await runJson(world, "check")).toEqual({ result: { problems: [] }, rest: reported() });
  runSql(world.path, "insert into buckets values ('users', 0, 0, 1)");
  expect(await runJson(world, "check")).toEqual({
    result: { problems: ["the total of users is wrong in bucket 0 of level 0"] },
    rest: failed(`${world.path} is damaged: 1 problem found`),
  });
});

test("backup prints the path of the file and what it has as JSON", async () => {
  using world = makeHarness();
  await fillDatabase(world.path, 2, 3);
  const { result } = await runJson(world, "backup", "--directory", world.at("backups"));
  const path = world.at("backups/test-2026-11-20T18-57-03.120Z.db");
  const counts = { users: 2, orders: 3, tokens: 0 };
  const made = { path, bytes: Bun.file(path).size, warnings: [] };
  expect(result).toEqual({ ...made, ...counts });

  const unread = { schema_version: 7, bytes: 9, warnings: ["the disk is old"] };
  using other = makeHarness({ backUp: async () => unread });
  expect(await runJson(other, "backup", "b.db")).toEqual({
    result: { path: "b.db", ...unread },
    rest: reported("Needs attention: the disk is old"),
  });
});
