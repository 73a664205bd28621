// The output of commands with --json, as docs/command-line.md describes it.
import { expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import manifest from "../../package.json" with { type: "json" };
import { backendOf } from "../../src/main.ts";
import { migrations } from "../../src/postgres/whole/migrate.ts";
import { SCHEMA_VERSION } from "../../src/sqlite/file/migrate.ts";
import { startServer } from "../http/server.ts";
import { runSql } from "../sqlite/open-database.ts";
import { makeDirectory } from "../support/directory.ts";
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
  const expiresAt = "2026-11-20T18:58:03.120Z";
  expect(await runJson(world, "token", "list")).toEqual({
    result: [
      { name: "a", scope: "orders:read", state: "valid", created_at: time, ...none },
      {
        ...{ name: "gone", scope: "write", state: "revoked", created_at: time, ...none },
        ...{ expires_at: expiresAt, revoked_at: time },
      },
    ],
    rest: reported(),
  });
  const schemas = { sqlite: SCHEMA_VERSION, postgresql: migrations.length };
  expect(await runJson(world, "version")).toEqual({
    result: { version: manifest.version, commit: "source", schemas },
    rest: reported(),
  });
});

test("check prints the problems as JSON, and exits as without it", async () => {
  using world = makeHarness();
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
  await world.run("seed", "--users", "2", "--orders", "3");
  const { result } = await runJson(world, "backup", "--directory", world.at("backups"));
  const path = world.at("backups/test-2026-11-20T18-57-03.120Z.db");
  const counts = { users: 2, orders: 3, tokens: 0 };
  const made = { path, bytes: Bun.file(path).size, warnings: [] };
  expect(result).toEqual({ ...made, ...counts });

  const { backUp } = backendOf(world.path);
  const warnings = ["the disk is old"];
  const stub: typeof backUp = async () => ({ schema_version: 7, bytes: 9, warnings });
  using other = makeHarness({ backUp: stub });
  expect(await runJson(other, "backup", "b.db")).toEqual({
    result: { path: "b.db", schema_version: 7, bytes: 9, warnings },
    rest: reported("Needs attention: the disk is old"),
  });
});

test("archive list prints the ranges of times as JSON", async () => {
  using directory = makeDirectory();
  mkdirSync(directory.at("archive"));
  const environment = { ARCHIVE_URL: `file://${directory.at("archive")}` };
  await using server = await startServer(environment);
  await server.restart();
  expect(await server.stop()).toBe(0);
  using world = makeHarness({ environment });
  const time = expect.stringMatching(/^20\d\d-\d\d-\d\dT[\d:]{8}\.\d{3}Z$/);
  expect(await runJson(world, "archive", "list")).toEqual({
    result: [{ generations: [1, 2], times: [time, time], loss: null }],
    rest: reported(),
  });
});

test("commands with --json print nothing on stdout when they fail", async () => {
  using world = makeHarness();
  for (const args of [["check"], ["token", "list"], ["backup", world.at("b.db")]]) {
    const outcome = await world.run(...args, "--json");
    expect(outcome).toMatchObject({ code: 1, stdout: "" });
    expect(outcome.stderr).toMatch(/^.+\n$/);
  }
  expect(await world.run("archive", "list", "--json")).toMatchObject({ code: 2, stdout: "" });
});
