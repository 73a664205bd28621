import { describe, expect, test } from "bun:test";
import { copyRows } from "../../src/copy.ts";
import { connect } from "../../src/postgres/connection.ts";
import { withPostgresCopyTarget } from "../../src/postgres/copy-target.ts";
import { migrate, migrations } from "../../src/postgres/migrate.ts";
import { makeHarness as makeCommandHarness } from "../cli/harness.ts";
import { expectRejection } from "../expect-error.ts";
import { cluster, type Harness, makeHarness } from "./postgres-harness.ts";

const NEWEST_VERSION = migrations.plain.length;
const OLDER_VERSION = NEWEST_VERSION - 1;
const tooOld = `the schema has version ${OLDER_VERSION}, but this program needs version ${NEWEST_VERSION}: run \`user-api migrate\` on this database`;

/** Creates a database with the schema before the newest one. */
async function makeOlder(): Promise<Harness> {
  const world = await makeHarness(true);
  const db = connect({ databaseUrl: world.url });
  const available = migrations.plain.slice(0, OLDER_VERSION);
  await migrate(db, { create: true, mode: "serve" }, available);
  await db.close();
  return world;
}

async function versionOf(world: Harness): Promise<number | undefined> {
  const rows = await world.run<{ schema_version: number }>("select schema_version from user_api");
  return rows[0]?.schema_version;
}

test.each(["plain", "citus"] as const)(
  "docs/scaling-out.md names the newest schema of the layout %s last",
  async (layout) => {
    const page = await Bun.file(`${import.meta.dir}/../../docs/scaling-out.md`).text();
    const rows = [...page.matchAll(/^\| (\d+) \| ([\w, ]+) \|/gm)];
    const versions = rows
      .filter(([, , layouts = ""]) => layouts.toLowerCase().split(", ").includes(layout))
      .map(([, version]) => Number(version));
    expect(versions.at(-1)).toBe(migrations[layout].length);
  },
);

describe.if(cluster !== null)("migrate", () => {
  test("migrates an older schema when a server opens it, and reports the versions", async () => {
    await using world = await makeOlder();
    const reported: [from: number, to: number][] = [];
    const onMigration = (from: number, to: number) => reported.push([from, to]);
    const store = await world.open({ onMigration });
    expect(await store.check()).toEqual([]);
    await world.open({ onMigration });
    expect(reported).toEqual([[OLDER_VERSION, NEWEST_VERSION]]);
    expect(await versionOf(world)).toBe(NEWEST_VERSION);
  });

  test("reports that the database is new when a command creates its tables", async () => {
    await using world = await makeHarness(true);
    const reported: [from: number, to: number][] = [];
    const onMigration = (from: number, to: number) => reported.push([from, to]);
    await world.open({ create: true, mode: "write", onMigration });
    expect(reported).toEqual([[0, NEWEST_VERSION]]);
  });

  test("rejects an older schema, and does not change it, when a server only reads it, or a command opens it", async () => {
    await using world = await makeOlder();
    for (const [mode, create] of [
      ["serve-read-only", false],
      ["read", false],
      ["write", true],
      ["write", false],
    ] as const) {
      const opening = world.open({ mode, create });
      const { message } = await expectRejection(opening, "operator");
      expect(message).toEndWith(tooOld);
    }
    expect(await versionOf(world)).toBe(OLDER_VERSION);
  });

  test("rejects an older schema, and does not change it, when it is the target of a copy", async () => {
    await using world = await makeOlder();
    await using source = await makeHarness();
    const store = await source.open();
    const copying = store.withCopySource((rows) =>
      withPostgresCopyTarget({ databaseUrl: world.url }, (target) =>
        copyRows(rows, target, () => {}, new AbortController().signal),
      ),
    );
    const { message } = await expectRejection(copying, "operator");
    expect(message).toEndWith(tooOld);
    expect(await versionOf(world)).toBe(OLDER_VERSION);
  });

  test("lets the command migrate the schema that other commands reject", async () => {
    await using world = await makeOlder();
    using commands = makeCommandHarness({ environment: { DATABASE_URL: world.url } });
    const rejected = await commands.run("token", "list");
    expect([rejected.code, rejected.stderr]).toEqual([1, expect.stringContaining(tooOld)]);
    expect(await versionOf(world)).toBe(OLDER_VERSION);
    const versions = `from version ${OLDER_VERSION} to ${NEWEST_VERSION}\n`;
    const migrated = await commands.run("migrate");
    expect(migrated).toMatchObject({ code: 0, stderr: "" });
    expect(migrated.stdout).toEndWith(versions);
    expect((await commands.run("migrate")).stdout).toEndWith(" is up to date\n");
    expect((await commands.run("token", "list")).code).toBe(0);
  });
});
