import { describe, expect, test } from "bun:test";
import { migrate, migrations } from "../../src/postgres/whole/migrate.ts";
import { expectRejection } from "../support/expect-error.ts";
import { cluster, type Harness, makeHarness } from "./postgres-harness.ts";

const CURRENT = migrations.length;
const extended = [...migrations, ["create table later (id integer primary key)"]];

async function versionOf(world: Harness): Promise<number | undefined> {
  const rows = await world.run<{ schema_version: number }>("select schema_version from user_api");
  return rows[0]?.schema_version;
}

describe.if(cluster !== null)("migrate", () => {
  test("migrates an older schema once, and reports the versions, when servers start at the same time", async () => {
    await using world = await makeHarness();
    const reported: [from: number, to: number][] = [];
    const onMigration = (from: number, to: number) => reported.push([from, to]);
    const start = () =>
      migrate(world.connect(), { create: true, mode: "serve", onMigration }, extended);
    await Promise.all([start(), start()]);
    expect(reported).toEqual([[CURRENT, CURRENT + 1]]);
    expect(await versionOf(world)).toBe(CURRENT + 1);
    expect(await world.run("select from later")).toEqual([]);
  });

  test("changes nothing when a statement of a migration fails", async () => {
    await using world = await makeHarness();
    const failing = [...extended, ["select 1 / 0"]];
    const migrating = migrate(world.connect(), { create: true, mode: "serve" }, failing);
    await expect(migrating).rejects.toThrow("division by zero");
    expect(await versionOf(world)).toBe(CURRENT);
    expect(await world.run("select to_regclass('later') as later")).toEqual([{ later: null }]);
  });

  test("creates the tables once, and reports it, when commands start at the same time and others hold advisory locks", async () => {
    await using world = await makeHarness(true);
    await using _held = await world.hold("select pg_advisory_xact_lock(1969320041)");
    const reported: [from: number, to: number][] = [];
    const onMigration = (from: number, to: number) => reported.push([from, to]);
    const start = () => world.open({ create: true, mode: "write", onMigration });
    await Promise.all([start(), start(), start()]);
    expect(reported).toEqual([[0, CURRENT]]);
  });

  test("rejects an older schema, and does not change it, when a server only reads it, or a command opens it", async () => {
    await using world = await makeHarness();
    for (const [mode, create] of [
      ["serve-read-only", false],
      ["read", false],
      ["write", true],
      ["write", false],
    ] as const) {
      const opening = migrate(world.connect(), { mode, create }, extended);
      const { message } = await expectRejection(opening, "operator");
      expect(message).toContain("run `user-api migrate` on this database");
    }
    expect(await versionOf(world)).toBe(CURRENT);
  });
});
