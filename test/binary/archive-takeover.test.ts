// Several servers with one archive: who waits for it, and who may continue it.
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { binary } from "../support/program.ts";
import { createUser, makePlace, stop, until, urlOf } from "./archived-place.ts";

const TIMEOUT_MS = 180_000;

async function makeArchive() {
  const place = await makePlace({ ARCHIVE_RESTORE: "if-missing" });
  return {
    ...place,
    start(name: string, mode: string, settings: Readonly<Record<string, string>> = {}) {
      const databaseUrl = place.at(`${name}/a.db`);
      return place.start({ ...settings, ARCHIVE_COMMIT: mode, DATABASE_URL: databaseUrl });
    },
    async restore(name = "restored.db"): Promise<ReadonlySet<string>> {
      const users = await place.restore({ path: place.at(name) });
      return new Set(users.map(({ email }) => email));
    },
  };
}

async function writeSome(url: string): Promise<string[]> {
  const written = await Promise.all(Array.from({ length: 20 }, () => createUser(url)));
  expect(new Set(written.map(({ status }) => status))).toEqual(new Set([201]));
  return written.map(({ json }) => json.data.email);
}

describe.skipIf(binary === "")("a signal ends a server", () => {
  for (const situation of ["to restore it", "with a database"]) {
    test.concurrent(
      `that waits for the archive ${situation}`,
      async () => {
        await using archive = await makeArchive();
        await urlOf(archive.start("first", "sync"));
        if (situation === "with a database") await archive.restore("second/a.db");
        const second = archive.start("second", "sync");
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
      const first = archive.start("first", "sync");
      await writeSome(await urlOf(first));
      await stop(first);
      storage.misbehave = ({ key }) => (key.startsWith("chunks/0") ? { do: "stall" } : null);
      const second = archive.start("second", "sync");
      const files = () =>
        existsSync(archive.at("second")) ? readdirSync(archive.at("second")) : [];
      await until(() => files().length > 0);
      second.kill("SIGTERM");
      const { code, stderr } = await second.ended;
      expect([code, stderr]).toEqual([0, ""]);
      expect(files()).toEqual([]);
      storage.misbehave = () => null;
      const third = archive.start("third", "sync");
      await urlOf(third);
      expect(third.output()).not.toContain('"waiting for the archive"');
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(binary === "")("the first server of an archive", () => {
  for (const restore of ["if-missing", "never"]) {
    test.concurrent(
      `that was killed before its first base continues on its database, and no other one begins with ARCHIVE_RESTORE=${restore}`,
      async () => {
        await using archive = await makeArchive();
        const { storage } = archive;
        storage.misbehave = ({ key }) => (key.startsWith("chunks/0") ? { do: "stall" } : null);
        const first = archive.start("first", "async");
        await urlOf(first);
        await until(() => storage.calls.some(({ key }) => key.startsWith("chunks/0")));
        first.kill("SIGKILL");
        await first.ended;
        storage.misbehave = () => null;
        const second = archive.start("second", "sync", { ARCHIVE_RESTORE: restore });
        const { code, stderr } = await second.ended;
        expect([code, stderr]).toEqual([1, expect.stringContaining("but no complete base: ")]);
        const next = archive.start("first", "sync", { ARCHIVE_RESTORE: restore });
        const written = await writeSome(await urlOf(next));
        await stop(next);
        expect(next.output()).not.toContain('"waiting for the archive"');
        expect(await archive.restore()).toEqual(new Set(written));
      },
      TIMEOUT_MS,
    );
  }
});
