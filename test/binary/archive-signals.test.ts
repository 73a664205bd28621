// A signal ends a server that waits for its archive, or restores from it.
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { binary } from "../support/program.ts";
import { createUser, makePlace, stop, until, urlOf } from "./archived-place.ts";

const TIMEOUT_MS = 180_000;

async function makeArchive() {
  const place = await makePlace({ ARCHIVE_RESTORE: "if-missing", ARCHIVE_COMMIT: "sync" });
  return {
    ...place,
    start: (name: string) => place.start({ DATABASE_URL: place.at(`${name}/a.db`) }),
  };
}

describe.skipIf(binary === "")("a signal ends a server", () => {
  for (const situation of ["to restore it", "with a database"]) {
    test.concurrent(
      `that waits for the archive ${situation}`,
      async () => {
        await using archive = await makeArchive();
        await urlOf(archive.start("first"));
        if (situation === "with a database")
          await archive.restore({ path: archive.at("second/a.db") });
        const second = archive.start("second");
        await until(() => second.output().includes('"waiting for the archive"'));
        second.kill("SIGTERM");
        const { code, stdout, stderr } = await second.ended;
        expect([code, stderr]).toEqual([0, ""]);
        expect(stdout).toContain('"stopped"');
        expect(stdout).not.toMatch(/"listening"|"archive (restored|opened)"/);
      },
      TIMEOUT_MS,
    );
  }

  test.concurrent(
    "that restores its database, and leaves no file, and nothing to wait for",
    async () => {
      await using archive = await makeArchive();
      const { storage } = archive;
      const first = archive.start("first");
      await createUser(await urlOf(first));
      await stop(first);
      storage.misbehave = ({ key }) => (key.startsWith("chunks/0") ? { do: "stall" } : null);
      const second = archive.start("second");
      const files = () =>
        existsSync(archive.at("second")) ? readdirSync(archive.at("second")) : [];
      await until(() => files().length > 0);
      second.kill("SIGTERM");
      const { code, stderr } = await second.ended;
      expect([code, stderr]).toEqual([0, ""]);
      expect(files()).toEqual([]);
      storage.misbehave = () => null;
      const third = archive.start("third");
      await urlOf(third);
      expect(third.output()).not.toContain('"waiting for the archive"');
    },
    TIMEOUT_MS,
  );
});
