// Kills a restore before each of its renames: the next start repeats it.
import { describe, expect, test } from "bun:test";
import { cpSync } from "node:fs";
import { sendCall } from "../http/server.ts";
import { binary, startProgram } from "../support/program.ts";
import { createUser, makePlace, stop, token, until, urlOf } from "./archived-place.ts";
import { skipTraced } from "./strace.ts";

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
