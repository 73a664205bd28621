// A server with an archive: restarts, restores at the start, and signals and kills while it waits or restores.
import { expect } from "bun:test";
import { cpSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { sendCall } from "../http/server.ts";
import { isLong } from "../support/long.ts";
import { binary, runBinary, startProgram } from "../support/program.ts";
import { createUser, makePlace, stop, token, until, urlOf } from "./archived-place.ts";
import { fillDisk, mountDisk } from "./disk.ts";
import { test as onBinary, testIf } from "./on-binary.ts";
import { skipTraced } from "./strace.ts";

const test = onBinary.concurrent;

test("an archive is restored at the start of a server only when that is permitted, and not to a full disk", async () => {
  await using place = await makePlace({}, "directory");
  const { DATABASE_URL, ARCHIVE_URL } = place.environment;
  const server = place.start();
  expect((await createUser(await urlOf(server), "ann@example.com")).status).toBe(201);
  await stop(server);
  place.loseData();

  const refused = await place.start().ended;
  expect([refused.code, refused.stderr]).toEqual([
    1,
    `ARCHIVE_URL: it has a database, but ${DATABASE_URL} is missing: run \`user-api restore --from ${ARCHIVE_URL} --database-url ${DATABASE_URL}\`, or set ARCHIVE_RESTORE=if-missing\n`,
  ]);
  using disk = mountDisk(2 ** 20);
  if (disk !== null) {
    fillDisk(disk.at("filler"));
    const path = disk.at("a.db");
    const settings = { DATABASE_URL: path, ARCHIVE_RESTORE: "if-missing" };
    const { code, stderr } = await place.start(settings).ended;
    const why = `ARCHIVE_URL: cannot restore ${path}: the disk is full\n`;
    expect([code, stderr, readdirSync(disk.path)]).toEqual([1, why, ["filler"]]);
  }
  writeFileSync(DATABASE_URL, "");
  const next = place.start({ ARCHIVE_RESTORE: "if-missing" });
  const path = "/users?email=ann@example.com";
  const found = await sendCall(await urlOf(next), token, "GET", path, {});
  expect(found.json.meta.total).toBe(1);
  expect(next.output()).toContain('"continued":true');
  await stop(next);
});

test("an archive is written when the database is a symbolic link to a file that does not exist yet", async () => {
  await using place = await makePlace({}, "directory");
  mkdirSync(place.at("data"));
  const link = place.at("link.db");
  symlinkSync(place.environment.DATABASE_URL, link);
  for (let start = 0; start < 2; start += 1) {
    const server = place.start({ DATABASE_URL: link, ARCHIVE_COMMIT: "sync" });
    const created = await createUser(await urlOf(server), `${start}@example.com`);
    expect(created.status).toBe(201);
    await stop(server);
    expect(server.output()).toContain(`"continued":${start > 0}`);
  }
  expect(existsSync(`${place.environment.DATABASE_URL}-archive`)).toBeTrue();
  const checked = await runBinary(["archive", "check"], place.environment);
  expect(checked.stdout).toMatch(/^Restored 2 users/);
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
  const files = () => (existsSync(at("restoring")) ? readdirSync(at("restoring")) : []);
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
  const { code, stderr } = await runBinary(["archive", "check"], environment);
  expect([code, stderr]).toEqual([1, "Cannot check s3://bucket: the archive is empty\n"]);
});

/** An archive with two users, and the database as it was with one. */
async function makeOlder(settings: Readonly<Record<string, string>>) {
  const place = await makePlace({ ARCHIVE_RESTORE: "if-missing", ...settings });
  for (const name of ["older", "newer"]) {
    const server = place.start({ STANDBY: "false" });
    await createUser(await urlOf(server));
    await stop(server);
    cpSync(place.at("data"), place.at(name), { recursive: true });
  }
  return place;
}

/**
 * Runs a command that is killed before one of its system calls, with this ordinal.
 * @returns whether it made so many
 */
async function killBefore(call: string, ordinal: number, args: readonly string[], env: object) {
  const fault = `inject=${call}:signal=KILL:when=${ordinal}`;
  const strace = `strace -D -f -qq -o /dev/null -e trace=${call} -e ${fault}`.split(" ");
  const traced = startProgram([...strace, binary, ...args], { env: { ...env } });
  // A standby listens before it restores.
  const event = "STANDBY" in env ? "following" : "listening";
  await until(() => traced.hasExited() || traced.output().includes(`"event":"${event}"`));
  traced.kill("SIGTERM");
  return (await traced.ended).code === 137;
}

testIf(!skipTraced).each([
  ["of a server without a database", "serve", null, {}],
  ["of a server with an older database", "serve", "older", {}],
  ["of a standby", "serve", null, { STANDBY: "true", TAKEOVER_SECONDS: "3" }],
  ["by the command", "restore --from s3://bucket", null, {}],
  ["by the command over an older database", "restore --from s3://bucket", "older", {}],
])("a restore that is killed before any rename is repeated: %s", async (...row) => {
  const [, command, data, settings] = row;
  await using place = await makeOlder(settings);
  const { environment, at } = place;
  let kills = 0;
  for (const call of ["link", "rename"])
    for (let ordinal = 1; ordinal < 20; ordinal += isLong ? 1 : 2) {
      place.loseData();
      if (data !== null) cpSync(at(data), at("data"), { recursive: true });
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
});
