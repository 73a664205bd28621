// The command `archive promote`, with an archive in S3.
import { expect, test } from "bun:test";
import { encodeJson } from "../../src/sqlite/archive/format.ts";
import { ANNOUNCEMENT_KEY } from "../../src/sqlite/archive/write/announcement.ts";
import { holderName } from "../../src/sqlite/disk/files.ts";
import { startS3Server } from "../object-storage/s3-server.ts";
import { failed, makeHarness } from "./harness.ts";

test("archive promote ends the log of a server when a standby has announced itself", async () => {
  await using s3 = await startS3Server();
  const environment = { ...s3.environment, ARCHIVE_URL: "s3://bucket/a" };
  using world = makeHarness({ environment });
  const holder = holderName(world.path);
  const promote = (...args: string[]) => world.run("archive", "promote", ...args);
  const refusal = (problem: string) => failed(`Cannot promote s3://bucket/a: ${problem}`);
  function announce(name: string, ageS: number): void {
    const timeMs = world.clock.time.getTime() - ageS * 1000;
    const body = encodeJson({ holder: name, takeoverMs: 3_000, timeMs });
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
  const directory = await promote("--force", "--archive-url", "file:///nowhere");
  const problem = "Cannot promote file:///nowhere: a directory is for one machine";
  expect(directory).toEqual(failed(problem));
});
