import { expect, test } from "bun:test";
import { readdirSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { backUpStore } from "../../src/cli/backup.ts";
import type { CommandSystem, StopReason } from "../../src/cli/system.ts";
import { AppError } from "../../src/error.ts";
import { backendOf } from "../../src/main.ts";
import { openSqlite } from "../../src/sqlite/backend.ts";
import type { OpenStore, Store } from "../../src/store.ts";
import { makeDirectory } from "../directory.ts";
import { makeHarness } from "./harness.ts";

test("backup and restore print a summary when they succeed", async () => {
  using world = makeHarness();
  await world.run("token", "create", "a");
  const copy = `${world.path}.copy`;
  const made = await world.run("backup", copy);
  expect(made).toMatchObject({ code: 0, stderr: "" });
  expect(made.stdout).toMatch(
    /^Backed up 0 users, 0 orders and 1 token to .+\.copy \(0\.1 MB, verified\)\n$/,
  );
  await world.run("token", "create", "b");
  const restored = await world.run("restore", copy);
  expect(restored).toMatchObject({ code: 0, stderr: "" });
  expect(restored.stdout.split("\n")).toEqual([
    `Restored 0 users, 0 orders and 1 token to ${world.path} (0.1 MB, verified)`,
    `The previous database was kept as ${world.path}.2026-11-20T18-57-03.120Z`,
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

test("backup creates its directory, and says in one line why it cannot write to a path", async () => {
  using world = makeHarness();
  using directory = makeDirectory();
  await world.run("token", "create", "a");
  const file = directory.at("file");
  writeFileSync(file, "");
  const created = directory.at("backups");
  expect(await world.run("backup", "--directory", created)).toMatchObject({ code: 0 });
  const within = join(file, "x.db");
  const missing = directory.at("no/such/d.db");
  const notDirectory = "a part of the path is not a directory";
  const rows: [string[], string][] = [
    [[missing], `Cannot back up to ${missing}: the directory does not exist\n`],
    [[within], `Cannot back up to ${within}: ${notDirectory}\n`],
    [["--directory", file], `Cannot create ${file}: it is not a directory\n`],
    [["--directory", within], `Cannot create ${within}: ${notDirectory}\n`],
    // The parent may be a disk that is not mounted.
    [
      ["--directory", join(missing, "a")],
      `Cannot create ${missing}/a: ${missing} does not exist\n`,
    ],
  ];
  for (const [args, message] of rows) {
    const { code, stdout, stderr } = await world.run("backup", ...args);
    expect([code, stdout, stderr], args.join(" ")).toEqual([1, "", message]);
  }
  expect(readdirSync(directory.path).sort()).toEqual(["backups", "file"]);
});

/** @returns the error of a backup that stops for this reason */
async function errorOfStopped(stop: StopReason): Promise<unknown> {
  using world = makeHarness();
  await world.run("token", "create", "a");
  const backUp: Store["backUp"] = (_path, _onProgress, signal) => {
    const { promise, reject } = Promise.withResolvers<never>();
    signal.addEventListener("abort", () => reject(signal.reason));
    return promise;
  };
  const open: OpenStore = async (options) => ({ ...(await openSqlite(options)), backUp });
  const system = {
    environment: { DATABASE_URL: world.path },
    backendOf: (url: string) => ({ ...backendOf(url), open }),
    terminalColumns: null,
    now: () => world.clock.time,
    flags: {},
    untilStopped: async () => stop,
  } as unknown as CommandSystem;
  return await backUpStore(system, `${world.path}.copy`, {}).catch((error) => error);
}

test.each([
  ["-wal", "the file belongs to the database"],
  ["-shm", "the file belongs to the database"],
  ["-journal", "the file belongs to the database"],
  // A command has created it.
  ["-serving", "the file already exists"],
  ["-last-backup", "the file belongs to the database"],
  ["-archive", "the file belongs to the database"],
])(
  "backup rejects a target that SQLite or a server takes for its own (%s)",
  async (suffix, reason) => {
    using world = makeHarness();
    await world.run("token", "create", "a");
    const target = world.path + suffix;
    const stderr = `Cannot back up to ${target}: ${reason}\n`;
    expect(await world.run("backup", target)).toEqual({ code: 1, stdout: "", stderr });
    expect((await world.run("check")).stdout).toBe("ok\n");
  },
);

test("backup stops when a signal arrives", async () => {
  const error = await errorOfStopped({ by: "signal", signal: "SIGINT" });
  expect(error).toEqual(new AppError("operator", "interrupted"));
});

test("backup throws an uncaught error, which is not an interruption", async () => {
  const uncaught = new Error("a bug");
  expect(await errorOfStopped({ by: "fault", error: uncaught })).toBe(uncaught);
});

test("backup with --directory names the file after the time, and --keep deletes the oldest", async () => {
  using world = makeHarness();
  using directory = makeDirectory();
  await world.run("token", "create", "a");
  const other = directory.at("other-2020-01-01T00-00-00.000Z.db");
  writeFileSync(other, "");
  writeFileSync(directory.at("test-notes.db"), "");
  const backUp = (...args: string[]) => world.run("backup", "--directory", directory.path, ...args);
  const list = () =>
    readdirSync(directory.path)
      .filter((name) => /^test-2/.test(name))
      .sort();
  for (const day of [20, 21, 22]) {
    world.clock.time = new Date(`2026-11-${day}T06:00:00.000Z`);
    expect(await backUp()).toMatchObject({ code: 0, stderr: "" });
  }
  expect(list()).toHaveLength(3);
  world.clock.time = new Date("2026-11-23T06:00:00.000Z");
  const { code, stdout } = await backUp("--keep", "2");
  expect(code).toBe(0);
  expect(stdout).toContain("/test-2026-11-23T06-00-00.000Z.db (0.1 MB, verified)");
  expect(list()).toEqual(["test-2026-11-22T06-00-00.000Z.db", "test-2026-11-23T06-00-00.000Z.db"]);
  // The clock has been set back: the new backup is kept nevertheless.
  world.clock.time = new Date("2026-11-19T06:00:00.000Z");
  await backUp("--keep", "1");
  expect(list()).toEqual(["test-2026-11-19T06-00-00.000Z.db"]);
  expect(readdirSync(directory.path)).toContain("test-notes.db");
  expect(readdirSync(directory.path)).toContain("other-2020-01-01T00-00-00.000Z.db");
});

test("backup deletes nothing when the new backup fails", async () => {
  using world = makeHarness();
  using directory = makeDirectory();
  const old = "test-2026-11-01T06-00-00.000Z.db";
  writeFileSync(directory.at(old), "");
  const { code } = await world.run("backup", "--directory", directory.path, "--keep", "1");
  expect(code).toBe(1);
  expect(readdirSync(directory.path)).toEqual([old]);
});

test("the metrics have the time of the last backup", async () => {
  using world = makeHarness();
  const token = (await world.run("token", "create", "a")).stdout.trim();
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
});
