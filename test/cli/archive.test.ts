// The API and the commands of a server with an archive, in a directory.
import { expect, test as inTurn } from "bun:test";
import { existsSync, mkdirSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { createDirectoryStorage } from "../../src/object-storage/directory.ts";
import { encodeJson } from "../../src/sqlite/archive/format.ts";
import { ANNOUNCEMENT_KEY } from "../../src/sqlite/archive/write/announcement.ts";
import { holderName } from "../../src/sqlite/disk/files.ts";
import { setAside } from "../../src/sqlite/file/files.ts";
import { newUser } from "../http/make.ts";
import { startServer } from "../http/server.ts";
import { startS3Server } from "../object-storage/s3-server.ts";
import { addDamagedBase } from "../sqlite/archive/archived.ts";
import { makeDirectory } from "../support/directory.ts";
import { failed, makeHarness } from "./harness.ts";

// Most wait.
const test = inTurn.concurrent;

/** @returns a directory for an archive, and the settings of a server that uses it */
function makeArchive() {
  const directory = makeDirectory();
  const path = directory.at("archive");
  mkdirSync(path);
  const settings = { ARCHIVE_URL: `file://${path}`, ARCHIVE_COMMIT: "sync" };
  return { ...directory, settings };
}

for (const [commit, status, retryAfter, users] of [
  ["sync", 503, "2", "1 user"],
  ["async", 201, null, "2 users"],
] as const)
  test(`a write in ${commit} mode is ${status} while the storage is away, and made once, and a command says that its write is not archived`, async () => {
    using archive = makeArchive();
    await using server = await startServer({ ...archive.settings, ARCHIVE_COMMIT: commit });
    const create = (email: string, headers = {}) =>
      server.call("POST", "/users", { body: { email }, headers });
    const createLate = () => create("late@example.com", { "Idempotency-Key": "a" });
    const environment = { ...archive.settings, DATABASE_URL: server.database };
    using world = makeHarness({ environment });
    // A base that fails is tried again later and later.
    while (!existsSync(archive.at("archive/bases"))) await Bun.sleep(5);
    renameSync(archive.at("archive"), archive.at("away"));
    // It waits for 5 s, as a write in sync mode does.
    const creating = status === 503 ? world.run("token", "create", "a") : null;
    const late = await createLate();
    expect([late.status, late.headers.get("retry-after")]).toEqual([status, retryAfter]);
    const error = retryAfter && "the archive does not respond";
    expect(await create("ann@example.com")).toMatchObject({ status, json: { error } });
    expect((await server.call("GET", "/users")).status).toBe(200);
    expect((await server.call("GET", "/health")).status).toBe(retryAfter ? 503 : 200);
    while (!server.output.includes('"archive not written"')) await Bun.sleep(5);
    const line =
      "The archive does not have the write until the server has sent it, or without a server, until the next start has written a base\n";
    const stderr = expect.stringMatching(new RegExp(`^${RegExp.escape(line)}Created token "a" `));
    if (creating !== null) expect(await creating).toMatchObject({ code: 0, stderr });
    renameSync(archive.at("away"), archive.at("archive"));
    while ((await createLate()).status !== 201) await Bun.sleep(5);
    while (!server.output.includes('"archive written again"')) await Bun.sleep(5);
    expect(await world.run("token", "list")).toMatchObject({ code: 0, stderr: "" });
    expect(await server.stop()).toBe(0);
    // Another server may have taken over.
    expect((await world.run("token", "create", "b")).stderr).toStartWith(line);
    const checked = await world.run("archive", "check");
    expect(checked.stdout + checked.stderr).toStartWith(`Restored ${users}, `);
  });

test("changes of a sync archive are printed when it has them", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive.settings);
  const environment = { DATABASE_URL: server.database };
  using plain = makeHarness({ environment });
  using world = makeHarness({ environment: { ...environment, ...archive.settings } });
  await newUser(server);
  renameSync(archive.at("archive"), archive.at("away"));
  const writing = server.call("PATCH", "/users/1", { body: { name: "Ann" } });
  while (!(await plain.run("changes")).stdout.includes('"id":2,')) await Bun.sleep(1);
  const { code, stderr } = await world.run("changes");
  expect([code, stderr]).toEqual([1, expect.stringContaining("may lack the newest changes")]);
  const following = world.begin("changes", "--follow", "--after", "1");
  await writing;
  renameSync(archive.at("away"), archive.at("archive"));
  await following.printed(/"id":2,/);
  expect((await world.run("changes")).stdout).toMatch(/"id":1,.*\n.*"id":2,.*\n$/);
  renameSync(archive.at("archive"), archive.at("away"));
  await server.call("PATCH", "/users/1", { body: { name: "Bea" } });
  await server.stop();
  const { code: last, stderr: problem, stdout } = await following.ended;
  expect([last, problem]).toEqual([1, expect.stringContaining("may lack the newest changes")]);
  expect(stdout).not.toContain('"id":3,');
});

test("a command fails when the database it uses is set aside", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive.settings);
  using world = makeHarness({ environment: { DATABASE_URL: server.database } });
  await newUser(server, { email: "ann@example.com" });
  renameSync(archive.at("archive"), archive.at("away"));
  const creating = world.begin("token", "create", "a");
  while (!(await world.run("token", "list")).stdout.includes("\na ")) await Bun.sleep(1);
  const following = world.begin("changes", "--follow");
  await following.printed(/"id":1,/);
  const old = `${server.database}-diverged-2026-11-27T02-37-46.136Z`;
  for (const name of [old, `${old}-wal`, `${old}.ndjson`]) writeFileSync(name, "");
  setAside(server.database, new Date());
  expect([old, `${old}-wal`, `${old}.ndjson`].map(existsSync)).toEqual([false, false, true]);
  const { code, stderr } = await following.ended;
  expect([code, stderr]).toEqual([1, expect.stringMatching(/^Cannot read further .* deleted\n$/)]);
  renameSync(archive.at("away"), archive.at("archive"));
  const lost = /^Cannot use .*: another server has taken over, and may lack .*\n$/;
  expect(await creating.ended).toEqual({ ...failed(), stderr: expect.stringMatching(lost) });
});

test("health and metrics say how far the archive is behind, and restores and checks find what a command has written, and everything after a clean stop", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive.settings);
  await newUser(server, { email: "ann@example.com" });
  const metrics = async () =>
    (await server.call("GET", "/metrics", { token: server.readToken })).text;
  const base = /^user_api_archive_last_base_timestamp_seconds \d{10}/m;
  // The state is updated once a second. At first, nothing is behind, and there is no base.
  while (!base.test(await metrics())) await Bun.sleep(20);
  const bytesBehind = async () =>
    (await server.call("GET", "/health", { token: null })).json.data.archive.bytes_behind;
  while ((await bytesBehind()) > 0) await Bun.sleep(20);
  expect(await metrics()).toMatch(/^user_api_archive_seconds_behind \d/m);
  expect(await metrics()).toMatch(/^user_api_archive_bytes_behind \d/m);
  using world = makeHarness({ environment: archive.settings });
  const at = (path: string) => ["--database-url", path];
  const restore = (...args: string[]) =>
    world.run("restore", "--from", archive.settings.ARCHIVE_URL, ...args);
  const feedOf = async () => (await server.call("GET", "/changes?limit=1")).json.meta.feed;
  const feed = await feedOf();
  // The command waits until the archive has its token.
  const created = await world.run("token", "create", "a", ...at(server.database));
  expect(created.stderr).toStartWith('Created token "a" ');
  await restore(...at(archive.at("restored.db")));
  const tokens = await world.run("token", "list", ...at(archive.at("restored.db")));
  expect(tokens.stdout).toContain("\na ");
  await server.restart();
  // What the server has noted for the command is no sign of another file.
  expect(await feedOf()).toBe(feed);
  await newUser(server, { email: "bob@example.com" });
  expect(await server.stop()).toBe(0);

  const checked = await world.run("archive", "check");
  expect(checked).toMatchObject({ code: 0, stderr: "" });
  expect(checked.stdout).toMatch(
    /^Restored 2 users, 0 orders and 3 tokens to a temporary file \(0\.\d MB, verified\)\nIts newest write was made at or before 20.*Z\n$/,
  );
  const listed = await world.run("archive", "list");
  expect(listed).toMatchObject({ code: 0, stderr: "" });
  expect(listed.stdout).toMatch(/^20\S+Z to 20\S+Z, generations 1 to 2\n$/);
  const [, from, until] = /(\S+) to (\S+),/.exec(listed.stdout) ?? [];
  const json = (await world.run("archive", "list", "--json")).stdout;
  expect(JSON.parse(json)).toEqual([{ generations: [1, 2], times: [from, until], loss: null }]);
  // Neither a file nor the directory of the database, which does not exist.
  expect(readdirSync(dirname(dirname(world.path)))).toEqual([]);
  const restored = await restore();
  expect(restored).toMatchObject({ code: 0, stderr: "" });
  expect(restored.stdout).toStartWith(`Restored 2 users, 0 orders and 3 tokens to ${world.path} `);
  expect(restored.stdout).toContain(": tokens revoked since then are valid again\n");
  const unfinished = `${world.path}.user-api-${process.pid}-0123abcd.partial`;
  mkdirSync(unfinished);
  expect([await world.run("archive", "check"), existsSync(unfinished)]).toEqual([checked, true]);
  const early = await restore("--at", "2020-01-01T00:00:00Z");
  const line = /^Cannot restore file:\S+: the archive begins at 20\S+Z\n$/;
  expect([early.code, early.stderr]).toEqual([1, expect.stringMatching(line)]);
});

test("archive check, restore and a start say that they have used an older base", async () => {
  using archive = makeArchive();
  await using server = await startServer(archive.settings);
  await newUser(server);
  expect(await server.stop()).toBe(0);
  const storage = createDirectoryStorage(archive.at("archive"), 30_000);
  const reason = await addDamagedBase(storage);
  const warning = `Needs attention: ${reason}\n`;
  using world = makeHarness({ environment: archive.settings });
  const result = /^Restored 1 user,.*\nIts newest write was made at or before 20.*Z\n/;
  const checked = await world.run("archive", "check");
  expect([checked.code, checked.stderr]).toEqual([1, warning]);
  expect(checked.stdout).toMatch(result);
  const restored = await world.run("restore", "--from", archive.settings.ARCHIVE_URL);
  expect([restored.code, restored.stderr]).toEqual([0, warning]);
  expect(restored.stdout).toMatch(result);
  const environment = { ...archive.settings, ARCHIVE_RESTORE: "if-missing" };
  using other = makeHarness({ environment });
  const next = await other.serve();
  const opened = await next.printed(/archive opened.*/);
  expect(opened).toContain(`"reason":"${reason}"`);
  expect(opened).toContain('"continued":true');
  expect(await next.stop()).toMatchObject({ code: 0 });
});

test("a server is not started with an archive that is missing, or for PostgreSQL, and a directory is not promoted", async () => {
  using world = makeHarness({ environment: { ARCHIVE_URL: "file:///nowhere" } });
  const problem = "Cannot list file:///nowhere: the directory does not exist";
  expect(await world.run("serve")).toEqual(failed(`ARCHIVE_URL: ${problem}`));
  const restored = await world.run("restore", "--from", "file:///nowhere");
  expect(restored).toEqual(failed(`Cannot restore file:///nowhere: ${problem}`));
  const postgres = await world.run("serve", "--database-url", "postgres://a@localhost/b");
  expect(postgres).toEqual(failed("ARCHIVE_URL is for a SQLite database only"));
  const why = "Cannot promote file:///nowhere: a directory is for one machine";
  expect(await world.run("archive", "promote", "--force")).toEqual(failed(why));
});

test("archive promote ends the log of a server when a standby has announced itself", async () => {
  await using s3 = await startS3Server();
  const environment = { ...s3.environment, ARCHIVE_URL: "s3://bucket/a" };
  using world = makeHarness({ environment });
  const holder = holderName(world.path);
  const promote = (...args: string[]) => world.run("archive", "promote", ...args);
  const refusal = (problem: string) => failed(`Cannot promote s3://bucket/a: ${problem}`);
  function announce(name: string, ageS: number): void {
    const timeMs = world.clock.time.getTime() - ageS * 1000;
    const body = encodeJson({ holder: name, timeMs, lacks: null, canWrite: true });
    s3.objects.set(`a/${ANNOUNCEMENT_KEY}`, { body, tag: '"1"', modified: "" });
  }
  const server = await world.serve();
  while (!s3.objects.keys().some((key) => key.startsWith("a/bases/"))) await Bun.sleep(5);
  const silence = "no standby has announced itself within 60 s by the clock of this machine";
  const none = refusal(`${silence}: start one, or add --force`);
  expect(await promote()).toEqual(none);
  announce(holder, 1);
  expect(await promote()).toEqual(none);
  announce("b:b.db", 61);
  expect(await promote()).toEqual(none);
  announce("b:b.db", 60);
  const next = "b:b.db takes over now";
  const old = `${holder} ends its writes when it sees this: with STANDBY it follows, otherwise it exits with 1`;
  expect(await promote()).toEqual({ code: 0, stdout: `${old}\n${next}\n`, stderr: "" });
  // Its next segment, because an idle server notices that only with its heartbeat.
  await world.run("token", "create", "a");
  const { code, stdout } = await server.ended;
  expect([code, stdout]).toEqual([1, expect.stringContaining("promote has taken over")]);
  announce("b:b.db", 61);
  const before = `The log of generation 1, of ${holder}, had ended before`;
  const forced = `${before}\nAny server that follows or starts takes over now\n`;
  expect(await promote("--force")).toEqual({ code: 0, stdout: forced, stderr: "" });
  expect(await world.run("archive", "check")).toMatchObject({ code: 0, stderr: "" });
});
