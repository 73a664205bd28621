// A server with an archive in a directory: restarts, and restores at the start.
import { describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { sendCall } from "../http/server.ts";
import { binary, runBinary } from "../support/program.ts";
import { createUser, makePlace, stop, token, urlOf } from "./archived-place.ts";
import { fillDisk, mountDisk } from "./disk.ts";

describe.skipIf(binary === "")("the archive", () => {
  test.concurrent("is restored at the start of a server only when that is permitted", async () => {
    await using place = await makePlace({}, "directory");
    const server = place.start();
    expect((await createUser(await urlOf(server), "ann@example.com")).status).toBe(201);
    await stop(server);
    place.loseData();

    const refused = await place.start().ended;
    expect([refused.code, refused.stderr]).toEqual([
      1,
      `ARCHIVE_URL: it has a database, but ${place.environment.DATABASE_URL} is missing: run \`user-api restore --from ${place.environment.ARCHIVE_URL} --database-url ${place.environment.DATABASE_URL}\`, or set ARCHIVE_RESTORE=if-missing\n`,
    ]);
    writeFileSync(place.environment.DATABASE_URL, "");
    const next = place.start({ ARCHIVE_RESTORE: "if-missing" });
    const path = "/users?email=ann@example.com";
    const found = await sendCall(await urlOf(next), token, "GET", path, {});
    expect(found.json.meta.total).toBe(1);
    expect(next.output()).toContain('"continued":true');
    await stop(next);
  });

  test.concurrent("is not restored to a full disk, and the server says why", async () => {
    await using place = await makePlace({ ARCHIVE_RESTORE: "if-missing" }, "directory");
    const server = place.start();
    await urlOf(server);
    await stop(server);
    using disk = mountDisk(2 ** 20);
    if (disk === null) return;
    fillDisk(disk.at("filler"));
    const path = disk.at("a.db");
    const { code, stderr } = await place.start({ DATABASE_URL: path }).ended;
    const why = `ARCHIVE_URL: cannot restore ${path}: the disk is full\n`;
    expect([code, stderr, readdirSync(disk.path)]).toEqual([1, why, ["filler"]]);
  });

  test.concurrent.each(["to a database", "to a file that does not exist yet"])(
    "is written when the database is a symbolic link %s",
    async (target) => {
      await using place = await makePlace({}, "directory");
      mkdirSync(place.at("data"));
      const link = place.at("link.db");
      symlinkSync(place.environment.DATABASE_URL, link);
      if (target === "to a database") {
        const first = place.start({ ARCHIVE_URL: "" });
        await urlOf(first);
        await stop(first);
      }
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
    },
    180_000,
  );
});
