// A server with an archive: restores at the start, signals and kills while it waits or restores, and starts with another
// state of its database than it had: what the archive has, and the database has not, must not be replaced by a new base.
import { expect } from "bun:test";
import * as fs from "node:fs";
import { sendCall } from "../http/server.ts";
import { isLong } from "../support/long.ts";
import { binary, runBinary, startProgram } from "../support/program.ts";
import { createUser, makePlace, stop, token, until, urlOf } from "./archived-place.ts";
import { fillDisk, mountDisk } from "./disk.ts";
import { failureOf, test, testIf } from "./on-binary.ts";
import { skipTraced } from "./strace.ts";

test("an archive is restored at the start of a server only when that is permitted, and not to a full disk", async () => {
  await using place = await makePlace({}, "directory");
  const { DATABASE_URL, ARCHIVE_URL } = place.environment;
  fs.mkdirSync(place.at("data"));
  // To a file that does not exist yet.
  fs.symlinkSync(DATABASE_URL, place.at("link.db"));
  const server = place.start({ DATABASE_URL: place.at("link.db") });
  expect((await createUser(await urlOf(server), "ann@example.com")).status).toBe(201);
  await stop(server);
  expect(fs.existsSync(`${DATABASE_URL}-archive`)).toBeTrue();
  place.loseData();

  expect(await failureOf(place.start().ended)).toBe(
    `ARCHIVE_URL: it has a database, but ${DATABASE_URL} is missing: run \`user-api restore --from ${ARCHIVE_URL} --database-url ${DATABASE_URL}\`, or set ARCHIVE_RESTORE=if-missing\n`,
  );
  using disk = mountDisk(2 ** 20);
  if (disk !== null) {
    fillDisk(disk.at("filler"));
    const path = disk.at("a.db");
    const settings = { DATABASE_URL: path, ARCHIVE_RESTORE: "if-missing" };
    const why = await failureOf(place.start(settings).ended);
    expect(why).toBe(`ARCHIVE_URL: cannot restore ${path}: the disk is full\n`);
    expect(fs.readdirSync(disk.path)).toEqual(["filler"]);
  }
  fs.writeFileSync(DATABASE_URL, "");
  const next = place.start({ ARCHIVE_RESTORE: "if-missing" });
  const path = "/users?email=ann@example.com";
  const found = await sendCall(await urlOf(next), token, "GET", path, {});
  expect(found.json.meta.total).toBe(1);
  expect(next.output()).toContain('"continued":true');
  await stop(next);
});

test("a signal ends a server that waits for its archive, or restores from it, and leaves no file", async () => {
  await using place = await makePlace({ ARCHIVE_RESTORE: "if-missing", ARCHIVE_COMMIT: "sync" });
  const { storage, at } = place;
  const start = (name: string) => place.start({ DATABASE_URL: at(`${name}/a.db`) });
  const first = start("first");
  await createUser(await urlOf(first));
  await place.restore({ path: at("with/a.db") });
  const waiting = [start("with"), start("without")];
  for (const server of waiting) {
    await until(() => server.output().includes('"waiting for the archive"'));
    server.kill("SIGTERM");
    const { code, stdout, stderr } = await server.ended;
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toContain('"stopped"');
    expect(stdout).not.toMatch(/"listening"|"archive (restored|opened)"/);
  }
  await stop(first);
  storage.misbehave = ({ key }) => (key.startsWith("chunks/0") ? { do: "stall" } : null);
  const restoring = start("restoring");
  const files = () => (fs.existsSync(at("restoring")) ? fs.readdirSync(at("restoring")) : []);
  await until(() => files().length > 0);
  restoring.kill("SIGTERM");
  const { code, stderr } = await restoring.ended;
  expect([code, stderr, files()]).toEqual([0, "", []]);
  storage.misbehave = () => null;
  const last = start("last");
  await urlOf(last);
  expect(last.output()).not.toContain('"waiting for the archive"');
});

test("a storage is trusted when its certificate is in NODE_EXTRA_CA_CERTS", async () => {
  const fixtures = `${import.meta.dir}/../fixtures`;
  const [cert, key] = [`${fixtures}/localhost.crt`, `${fixtures}/localhost.key`];
  await using server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    tls: { cert: Bun.file(cert), key: Bun.file(key) },
    fetch: () => new Response("<ListBucketResult></ListBucketResult>"),
  });
  const environment = {
    ...{ ARCHIVE_URL: "s3://bucket", S3_ENDPOINT: `https://localhost:${server.port}` },
    ...{ S3_ACCESS_KEY_ID: "id", S3_SECRET_ACCESS_KEY: "secret", NODE_EXTRA_CA_CERTS: cert },
  };
  const why = await failureOf(runBinary(["archive", "check"], environment));
  expect(why).toBe("Cannot check s3://bucket: the archive is empty\n");
});

const primary = { STANDBY: "false", ARCHIVE_COMMIT: "async" };
type Settings = Readonly<Record<string, string>>;

async function makeArchived(settings: Settings, kind: "bucket" | "directory" = "bucket") {
  const place = await makePlace(settings, kind);
  /** Serves until the users are created. @param copy called while the server runs */
  async function serve(count: number, more: Settings = {}, copy = () => {}): Promise<void> {
    const server = place.start(more);
    const url = await urlOf(server);
    for (let at = 0; at < count; at += 1) expect((await createUser(url)).status).toBe(201);
    copy();
    await stop(server);
  }
  const path = place.environment.DATABASE_URL;
  return {
    ...place,
    path,
    serve,
    keep: (name = "older") => fs.cpSync(place.at("data"), place.at(name), { recursive: true }),
    putBack() {
      for (const suffix of ["", "-wal"])
        fs.copyFileSync(place.at(`older/a.db${suffix}`), path + suffix);
    },
  };
}

/** The last system call before which a restore is killed, if it makes so many. */
const LAST_ORDINAL = isLong ? 4 : 1;

/**
 * Runs a command that is killed before one of its system calls, with this ordinal.
 * @returns whether it made so many
 */
async function killBefore(call: string, ordinal: number, args: readonly string[], env: Settings) {
  const fault = `inject=${call}:signal=KILL:when=${ordinal}`;
  const strace = `strace -D -f -qq -o /dev/null -e trace=${call} -e ${fault}`.split(" ");
  const traced = startProgram([...strace, binary, ...args], { env });
  // A standby listens before it restores.
  const event = env["STANDBY"] === "true" ? "following" : "listening";
  await until(() => traced.hasExited() || traced.output().includes(`"event":"${event}"`));
  traced.kill("SIGTERM");
  return (await traced.ended).code === 137;
}

/** A short run has the first two. */
const restores = [
  ["by the command over an older database", "restore --from s3://bucket", "older", primary],
  ["of a server without a database", "serve", null, primary],
  ["of a server with an older database", "serve", "older", primary],
  ["of a standby", "serve", null, { STANDBY: "true", TAKEOVER_SECONDS: "3" }],
  ["by the command", "restore --from s3://bucket", null, primary],
] as const;

testIf(!skipTraced).each(restores.slice(0, isLong ? undefined : 2))(
  "a restore that is killed before any rename is repeated: %s",
  async (...row) => {
    const [, command, data, settings] = row;
    await using place = await makeArchived({ ARCHIVE_RESTORE: "if-missing", ...settings });
    const { environment, at } = place;
    await place.serve(1, primary);
    place.keep();
    await place.serve(1, primary);
    let kills = 0;
    for (const call of ["link", "rename"])
      for (let ordinal = 1; ordinal <= LAST_ORDINAL; ordinal += 1) {
        place.loseData();
        if (data !== null) fs.cpSync(at(data), at("data"), { recursive: true });
        if (!(await killBefore(call, ordinal, command.split(" "), environment))) break;
        kills += 1;
        const server = place.start();
        const url = await urlOf(server);
        const read = async () =>
          (await sendCall(url, token, "GET", "/users?limit=1", {})).json?.meta?.total;
        while ((await read()) !== 2) await Bun.sleep(20);
        await stop(server);
      }
    expect(kills).toBeGreaterThan(isLong ? 1 : 0);
  },
  // As many starts as calls that can be the last one: as the histories of the models, it takes as long as it takes.
  36_000_000,
);

const sync = { ARCHIVE_COMMIT: "sync" };
const HAS_MORE =
  "ARCHIVE_URL: the archive has writes that this database does not have, e.g. because an older state of its files was put back: restore it with `user-api restore --from` and this ARCHIVE_URL, or choose another one\n";

const HAS_LATER =
  /^ARCHIVE_URL: (segment 1 of generation 2 is missing|log\/\S+ is damaged), and the archive has later writes that this database does not have: put back .*--at/;

test("a start with an archive is refused when an older state of all files was put back", async () => {
  await using archived = await makeArchived(sync);
  const { environment, serve, keep, putBack, restore, start } = archived;
  await serve(3, {}, keep);
  await serve(3);
  putBack();
  const known = await restore();
  expect(await failureOf(start().ended)).toBe(HAS_MORE);
  expect(await restore()).toEqual(known);
  // A restore resolves this.
  const command = ["restore", "--from", environment.ARCHIVE_URL];
  expect((await runBinary(command, environment)).code).toBe(0);
  await serve(1);
  expect(await restore()).toHaveLength(known.length + 1);
});

test.each([
  ["a segment that is missing", (segment: string) => fs.rmSync(segment)],
  [
    "a segment that is damaged, and is the last one that can be read",
    (segment: string) => fs.writeFileSync(segment, ""),
  ],
])("a start with an archive is refused when it lacks what follows %s", async (what, damage) => {
  await using archived = await makeArchived(sync, "directory");
  const { environment, path, serve, keep, putBack, at, start } = archived;
  await serve(3, {}, keep);
  await serve(3);
  keep("newer");
  putBack();
  const log = at("archive/log/00000002/0000000");
  const slots = fs.readdirSync(log).sort();
  const isLast = what.includes("the last one");
  if (isLast) for (const slot of slots.splice(-1)) fs.rmSync(`${log}/${slot}`);
  damage(`${log}/${slots.at(isLast ? -1 : 0)}`);
  const why = await failureOf(start().ended);
  expect(why).toMatch(HAS_LATER);
  // The database itself resolves this, or the command that the message names.
  if (!isLast) return await serve(1, { DATABASE_URL: at("newer/a.db") });
  const [, command = ""] = /`user-api (.+)`/.exec(why) ?? [];
  const restored = await runBinary([...command.split(" "), "--database-url", path], environment);
  expect(restored).toMatchObject({ code: 0 });
  await serve(1);
});

test("a database is archived only to its own archive, neither to another one nor to an empty one", async () => {
  await using archived = await makeArchived(sync, "directory");
  const { path, serve, start, at } = archived;
  await serve(1);
  for (const name of ["empty", "other"]) fs.mkdirSync(at(name));
  await serve(1, { ARCHIVE_URL: `file://${at("other")}`, DATABASE_URL: at("other.db") });
  for (const name of ["empty", "other"]) {
    const settings = { ARCHIVE_URL: `file://${at(name)}`, ARCHIVE_RESTORE: "if-missing" };
    expect(await failureOf(start(settings).ended)).toMatch(
      /^ARCHIVE_URL: it is empty or another archive, .* delete \S+a\.db-archive\n$/,
    );
  }
  expect(fs.readdirSync(at("empty"))).toEqual([]);
  await serve(1);
  for (const suffix of ["", "-wal"]) fs.rmSync(path + suffix, { force: true });
  await failureOf(start({ ARCHIVE_URL: `file://${at("empty")}` }).ended);
});
