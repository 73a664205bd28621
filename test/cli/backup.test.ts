import { expect, test } from "bun:test";
import { readdirSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import type { Backend } from "../../src/domain/store.ts";
import { createToken, failed, makeHarness } from "./harness.ts";

test("backup and restore print a summary when they succeed", async () => {
  using world = makeHarness();
  await world.run("token", "create", "a");
  const copy = `${world.path}.copy`;
  const made = await world.run("backup", copy);
  expect(made).toMatchObject({ code: 0, stderr: "" });
  const summary = /^Backed up 0 users, 0 orders and 1 token to .+\.copy \(0\.1 MB, verified\)\n$/;
  expect(made.stdout).toMatch(summary);
  await world.run("token", "create", "b");
  const restored = await world.run("restore", copy);
  expect(restored).toMatchObject({ code: 0, stderr: "" });
  expect(restored.stdout.split("\n")).toEqual([
    `Restored 0 users, 0 orders and 1 token to ${world.path} (0.1 MB, verified)`,
    `The previous database was kept as ${world.path}.2026-11-20T18-57-03.120Z`,
    "It has 0 users and 0 orders",
    'No longer valid, because the backup is older: "b"',
    "",
  ]);
  expect((await world.run("token", "list")).stdout).toContain("\na ");
  using other = makeHarness();
  const fresh = await other.run("restore", copy);
  expect(fresh.stdout.split("\n")).toEqual([
    `Restored 0 users, 0 orders and 1 token to ${other.path} (0.1 MB, verified)`,
    "No previous database could be read: tokens revoked since the backup are valid again",
    'Valid tokens: "a"',
    "",
  ]);
});

/** Ends only when it is cancelled. */
const backUpEndlessly: Backend["backUp"] = ({ signal }) => {
  const { promise, reject } = Promise.withResolvers<never>();
  signal.addEventListener("abort", () => reject(signal.reason));
  return promise;
};

test("backup stops and says why when a signal arrives, or there is an uncaught error", async () => {
  using world = makeHarness({ backUp: backUpEndlessly });
  const backUp = () => world.begin("backup", world.at("b.db"));
  const interrupted = await backUp().stop({ by: "signal", signal: "SIGINT" });
  expect(interrupted).toEqual(failed("interrupted"));
  const broken = await backUp().stop({ by: "fault", error: new Error("a bug") });
  expect(broken).toEqual(failed("Unexpected error: a bug"));
});

test("backup with --directory names the file after the time, and --keep deletes the oldest", async () => {
  using world = makeHarness();
  const directory = world.at("backups");
  await world.run("token", "create", "a");
  const file = world.at("file");
  writeFileSync(file, "");
  const why = "a part of the path is not a directory";
  expect(await world.run("backup", "--directory", file)).toEqual(
    failed(`Cannot back up to ${file}/test-2026-11-20T18-57-03.120Z.db: ${why}`),
  );
  const others = ["other-2020-01-01T00-00-00.000Z.db", "test-notes.db"];
  for (const name of others) await Bun.write(`${directory}/${name}`, "");
  const backUpAt = async (time: string, ...args: string[]) => {
    world.clock.time = new Date(time);
    const outcome = await world.run("backup", "--directory", directory, ...args);
    expect(outcome).toMatchObject({ code: 0, stderr: "" });
    expect(outcome.stdout).toContain(`/test-${time.replaceAll(":", "-")}.db (0.1 MB, verified)`);
    const names = readdirSync(directory).sort();
    expect(names).toEqual(expect.arrayContaining(others));
    return names.filter((name) => !others.includes(name));
  };
  await backUpAt("2026-11-20T06:00:00.000Z");
  await backUpAt("2026-11-21T06:00:00.000Z");
  expect(await backUpAt("2026-11-22T06:00:00.000Z")).toHaveLength(3);
  expect(await backUpAt("2026-11-23T06:00:00.000Z", "--keep", "2")).toEqual([
    "test-2026-11-22T06-00-00.000Z.db",
    "test-2026-11-23T06-00-00.000Z.db",
  ]);
  // The clock is set back, or was ahead before: later backups neither count nor are deleted.
  expect(await backUpAt("2026-11-19T06:00:00.000Z", "--keep", "1")).toEqual([
    "test-2026-11-19T06-00-00.000Z.db",
    "test-2026-11-22T06-00-00.000Z.db",
    "test-2026-11-23T06-00-00.000Z.db",
  ]);
  await world.shell(`"$@" backup --directory ${directory} --keep 1 > /dev/full`);
  const left = readdirSync(directory);
  expect(left).toHaveLength(others.length + 1);
  // A backup that fails deletes nothing.
  rmSync(world.path);
  const failing = await world.run("backup", "--directory", directory, "--keep", "1");
  expect([failing.code, readdirSync(directory)]).toEqual([1, left]);
});

test("the metrics have the time of the last backup", async () => {
  using world = makeHarness();
  const token = await createToken(world, "a");
  const server = await world.serve();
  const lastBackup = async () => {
    const headers = { authorization: `Bearer ${token}` };
    const text = await (await fetch(`${server.url}/api/v1/metrics`, { headers })).text();
    expect(text).toContain("\nuser_api_writable 1\n");
    expect(text).toMatch(/^user_api_disk_free_bytes [1-9]\d+$/m);
    return /^user_api_last_backup_timestamp_seconds (.+)$/m.exec(text)?.[1];
  };
  expect(await lastBackup()).toBeUndefined();
  await world.run("backup", `${world.path}.copy`);
  const { mtimeMs } = statSync(`${world.path}.copy`);
  expect(Number(await lastBackup())).toBeWithin(mtimeMs / 1000 - 1, Date.now() / 1000 + 1);
  await server.stop();
  // Later backups are recorded also while no server runs.
  const marker = `${world.path}-last-backup`;
  utimesSync(marker, 1, 1);
  await world.run("backup", `${world.path}.copy2`);
  expect(statSync(marker).mtimeMs).toBeGreaterThan(1000);
  // A link in its place is replaced, and not followed.
  const victim = world.at("victim");
  writeFileSync(victim, "precious", { mode: 0o644 });
  rmSync(marker);
  symlinkSync(victim, marker);
  expect(await world.run("backup", world.at("copy.db"))).toMatchObject({ code: 0, stderr: "" });
  expect(await Bun.file(victim).text()).toBe("precious");
  expect(statSync(victim).mode & 0o777).toBe(0o644);
});
