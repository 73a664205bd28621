// Kills the server while clients write, at moments that are hard for the archive, deletes its data, and restores the
// archive elsewhere. It has a prefix of the commits: in sync mode with all that was acknowledged, in async mode with all
// but the last moment.
import { describe, expect, test } from "bun:test";
import { cpSync, existsSync, statSync } from "node:fs";
import { sendCall } from "../http/server.ts";
import type { S3Server } from "../object-storage/s3-server.ts";
import { isLong } from "../support/long.ts";
import { binary, type Running, runBinary, startProgram } from "../support/program.ts";
import {
  createUser,
  makePlace,
  stop,
  token,
  until,
  urlOf,
  writeUntilKilled,
} from "./archived-place.ts";
import { largeMetadata } from "./disk.ts";
import { skipTraced } from "./strace.ts";

const aims = ["any moment", "a restore", "a checkpoint", "a base", "a restart"] as const;
type Aim = (typeof aims)[number];

/** In each mode; each aim has its turn. `ARCHIVE_ROUNDS` for a longer run. */
const ROUNDS = Number(Bun.env["ARCHIVE_ROUNDS"] ?? (isLong ? aims.length : 2));
/** In async mode. `ARCHIVE_LOST_MS` for a stricter one on a machine that is not busy. */
const MAX_LOST_MS = Number(Bun.env["ARCHIVE_LOST_MS"] ?? 30_000);
const CLIENTS = isLong ? 64 : 16;
/** Latency of the storage. What is under way when the server is killed never arrives. */
const LATENCY_MS = 30;
/** Uploads of writes before the server is killed: a restore finds the first ones. */
const MIN_UPLOADS = 4;
/** More than the server needs for a commit and its upload, so that the kill is at any moment of them. */
const RANDOM_MS = isLong ? 1_500 : 300;
/** What `restore` says when a server was killed while it wrote the first copy of its database. */
const WITHOUT_BASE = /^(Needs attention: what generation \d+ has written .*\n)?$/;

async function makeWorld(commit: string) {
  const place = await makePlace({
    ARCHIVE_URL: "s3://bucket/shop",
    ARCHIVE_COMMIT: commit,
    ARCHIVE_RESTORE: "if-missing",
  });
  const { storage } = place;
  storage.latencyMs = LATENCY_MS;
  return {
    ...place,
    /** @returns the number of users in a restored database, whose ids are consecutive in the order of commits */
    async restore(stderr: RegExp): Promise<number> {
      const path = place.at("restored.db");
      const rows = await place.restore({ path, stderr });
      const checked = await runBinary(["check", "--database-url", path]);
      expect(checked).toMatchObject({ code: 0, stdout: "ok\n" });
      expect(rows.map(({ id }) => id)).toEqual(rows.map((_, at) => at + 1));
      return rows.length;
    },
  };
}

type World = Awaited<ReturnType<typeof makeWorld>>;

/** Kills a server, and everything that it has sent and that was not done. */
async function kill(storage: S3Server, server: Running): Promise<void> {
  server.kill("SIGKILL");
  storage.misbehave = () => ({ do: "stall" });
  await server.ended;
  await Bun.sleep(2 * LATENCY_MS);
  storage.misbehave = () => null;
}

/** Kills the server when a request is about such an object, which is not done. */
function killAt(storage: S3Server, server: Running, isAim: (call: string) => boolean): void {
  let isKilled = false;
  storage.misbehave = ({ operation, key }) => {
    isKilled ||= isAim(`${operation} ${key}`);
    if (!isKilled) return null;
    server.kill("SIGKILL");
    return { do: "stall" };
  };
}

async function untilCheckpoint({ environment: { DATABASE_URL } }: World): Promise<void> {
  const state = () => statSync(DATABASE_URL).mtimeMs;
  for (const before = state(); state() === before; ) await Bun.sleep(1);
}

interface Crash {
  readonly acknowledged: Awaited<ReturnType<typeof writeUntilKilled>>;
  /** When nothing more could be sent; `null` if nothing acknowledged may be missing. */
  readonly atMs: number | null;
}

async function crash(world: World, aim: Aim): Promise<Crash> {
  const { storage, environment, start } = world;
  const first = start();
  if (aim === "a restore") killAt(storage, first, (call) => call.startsWith("get shop/chunks/"));
  const url = await first.listening;
  if (url === null) return { acknowledged: [], atMs: null };
  // Until a base that is needed is complete, the archive has nothing new in async mode.
  const hasBase = () => /"continued":true|"archive base written"/.test(first.output());
  while (!hasBase()) await Bun.sleep(10);
  // A checkpoint begins when the log is long.
  const metadata = aim === "a checkpoint" ? largeMetadata : undefined;
  const writing = writeUntilKilled(url, CLIENTS, metadata);
  const before = storage.calls.length;
  const uploads = () =>
    storage.calls.slice(before).filter(({ key }) => key.startsWith("shop/log/"));
  while (uploads().length < MIN_UPLOADS) await Bun.sleep(5);
  await Bun.sleep(Math.random() * RANDOM_MS);
  if (aim === "a checkpoint") await untilCheckpoint(world);
  const atMs = performance.now();
  if (aim === "a base") first.kill("SIGTERM");
  else await kill(storage, first);
  await first.ended;
  const acknowledged = await writing;
  if (aim === "a restart") {
    const second = start();
    await Bun.sleep(Math.random() * 400);
    await kill(storage, second);
  }
  if (aim !== "a base") return { acknowledged, atMs };
  // A change while no server runs needs a base.
  const created = await runBinary(["token", "create", crypto.randomUUID()], environment);
  expect(created.code).toBe(0);
  const second = start();
  killAt(storage, second, (call) => call.startsWith("put shop/chunks"));
  await second.ended;
  return { acknowledged, atMs: null };
}

describe.skipIf(binary === "")("an archive", () => {
  for (const commit of ["sync", "async"]) {
    test.concurrent(
      `has ${commit === "sync" ? "all acknowledged writes" : "a prefix of the commits"} when the machine is lost in ${commit} mode`,
      async () => {
        await using world = await makeWorld(commit);
        const { storage, loseData, restore } = world;
        let known = 0;
        let maxLostMs = 0;
        for (let round = 0; round < ROUNDS; round += 1) {
          const aim = aims[round % aims.length] ?? "any moment";
          const { acknowledged, atMs } = await crash(world, aim);
          storage.misbehave = () => null;
          loseData();
          const isOtherServer = aim === "a base" || aim === "a restart";
          const restored = await restore(isOtherServer ? WITHOUT_BASE : /^$/);
          // What a restore has found before is not lost.
          expect([aim, restored]).toEqual([aim, Math.max(known, restored)]);
          const lost = acknowledged.filter(({ id }) => id > restored);
          if (commit === "sync" || atMs === null) expect([aim, lost]).toEqual([aim, []]);
          for (const each of lost) maxLostMs = Math.max(maxLostMs, (atMs ?? 0) - each.atMs);
          known = restored;
        }
        expect(maxLostMs).toBeLessThan(MAX_LOST_MS);
        expect(known).toBeGreaterThan(0);
        expect(existsSync(world.environment.DATABASE_URL)).toBeFalse();
      },
      90_000 * ROUNDS,
    );
  }
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

describe.skipIf(skipTraced)("a restore that is killed before any of its renames", () => {
  test.concurrent.each([
    ["of a server without a database", ["serve"], null, {}],
    ["of a server with an older database", ["serve"], "older", {}],
    ["of a standby", ["serve"], null, { STANDBY: "true", TAKEOVER_SECONDS: "3" }],
    ["by the command", ["restore", "--from", "s3://bucket"], null, {}],
    ["by the command over an older database", ["restore", "--from", "s3://bucket"], "older", {}],
  ])(
    "is repeated by the next start: %s",
    async (_title, args, data, settings) => {
      await using place = await makeOlder(settings);
      const { environment, at } = place;
      let kills = 0;
      for (const call of ["link", "rename"])
        for (let ordinal = 1; ordinal < 20; ordinal += 1) {
          place.loseData();
          if (data !== null) cpSync(at(data), at("data"), { recursive: true });
          if (!(await killBefore(call, ordinal, args, environment))) break;
          kills += 1;
          const server = place.start();
          const url = await urlOf(server);
          const read = async () =>
            (await sendCall(url, token, "GET", "/users?limit=1", {})).json?.meta?.total;
          while ((await read()) !== 2) await Bun.sleep(20);
          await stop(server);
        }
      expect(kills).toBeGreaterThan(1);
    },
    300_000,
  );
});
