// Two servers with one archive. The first one is suspended for longer than its lease, as by SIGSTOP or swapping, while
// clients write, and goes on when the second one has restored the archive and serves.
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { isLong } from "../support/long.ts";
import { binary } from "../support/program.ts";
import { createUser, makePlace, stop, until, urlOf } from "./archived-place.ts";

const CLIENTS = 16;
const modes = isLong ? ["sync", "async"] : ["sync"];
/** A lease is waited for 16.5 seconds. */
const TIMEOUT_MS = 120_000;

async function makeArchive() {
  const place = await makePlace({ ARCHIVE_RESTORE: "if-missing" });
  return {
    ...place,
    /** @param name of the machine */
    start(name: string, mode: string, settings: Readonly<Record<string, string>> = {}) {
      const databaseUrl = place.at(`${name}/a.db`);
      return place.start({ ...settings, ARCHIVE_COMMIT: mode, DATABASE_URL: databaseUrl });
    },
    /** @returns the emails of the users that the archive has */
    async restore(name = "restored.db"): Promise<ReadonlySet<string>> {
      const users = await place.restore({ path: place.at(name) });
      return new Set(users.map(({ email }) => email));
    },
  };
}

/** @returns the status, and the email if the write was acknowledged */
async function write(url: string): Promise<{ status: number; email: string | null }> {
  const { status, json } = await createUser(url);
  return { status, email: status === 201 ? json.data.email : null };
}

/** Writes with several clients until `isOver`. @returns what was acknowledged */
async function writeUntil(url: string, isOver: () => boolean): Promise<string[]> {
  const acknowledged: string[] = [];
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (!isOver()) {
      const { email } = await write(url);
      if (email !== null) acknowledged.push(email);
      // Rejections are immediate: without a pause they would use all of the processor.
      else await Bun.sleep(20);
    }
  });
  await Promise.all(clients);
  return acknowledged;
}

/** @returns the emails of writes all of which were acknowledged */
async function writeSome(url: string): Promise<string[]> {
  const written = await Promise.all(Array.from({ length: 20 }, () => write(url)));
  expect(new Set(written.map(({ status }) => status))).toEqual(new Set([201]));
  return written.flatMap(({ email }) => (email === null ? [] : [email]));
}

describe.skipIf(binary === "")("of two servers with one archive", () => {
  for (const mode of modes) {
    test.concurrent(
      `the one that was suspended acknowledges no more writes in ${mode} mode`,
      async () => {
        await using archive = await makeArchive();
        const first = archive.start("first", mode);
        const firstUrl = await urlOf(first);
        let isOver = false;
        const { storage } = archive;
        const uploads = (since: number) =>
          storage.calls.slice(since).filter(({ key }) => key.startsWith("log/00000001/"));
        const startedAt = storage.calls.length;
        const writing = writeUntil(firstUrl, () => isOver);
        // Four can be under way: then the archive has one of a write.
        await until(() => uploads(startedAt).length > 6);
        first.kill("SIGSTOP");

        const second = archive.start("second", mode);
        const secondUrl = await urlOf(second);
        expect(second.output()).toContain('"waiting for the archive"');
        const bySecond = await writeSome(secondUrl);

        // The first server cannot find out that it has lost the lease, but all else works.
        storage.misbehave = ({ key }) =>
          key === "lease" ? { do: "fail", status: 500, code: "InternalError" } : null;
        const resumedAt = storage.calls.length;
        first.kill("SIGCONT");
        const late = Promise.all(Array.from({ length: 20 }, () => write(firstUrl)));
        // Nothing is sent if the archive had all commits when the server was suspended.
        const deadlineMs = performance.now() + 5_000;
        while (uploads(resumedAt).length === 0 && performance.now() < deadlineMs)
          await Bun.sleep(10);
        bySecond.push(...(await writeSome(secondUrl)));
        storage.misbehave = () => null;

        await until(() => first.output().includes('"archive lost"'));
        expect((await write(firstUrl)).status).toBe(503);
        bySecond.push(...(await writeSome(secondUrl)));
        isOver = true;
        const byFirst = await writing;
        expect(byFirst.length).toBeGreaterThan(0);
        for (const { email } of await late) if (email !== null) byFirst.push(email);

        await stop(second);
        const restored = await archive.restore();
        const acknowledged = [...bySecond, ...(mode === "sync" ? byFirst : [])];
        expect(acknowledged.filter((email) => !restored.has(email))).toEqual([]);
      },
      TIMEOUT_MS,
    );
  }
});

test.skipIf(binary === "").each(modes)(
  "a server with another database does not wait to be refused in %s mode",
  async (mode) => {
    await using archive = await makeArchive();
    const other = archive.start("second", "", { ARCHIVE_URL: "", ARCHIVE_RESTORE: "" });
    await urlOf(other);
    other.kill("SIGTERM");
    await other.ended;
    await urlOf(archive.start("first", "sync"));
    // It never gets the lease.
    const refused = await archive.start("second", mode).ended;
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringMatching(/^ARCHIVE_URL: the archive belongs to another database: .*\n$/),
    ]);
  },
  TIMEOUT_MS,
);

describe.skipIf(binary === "")("a signal ends a server", () => {
  const hasNoDatabase = "that waits for the archive to restore it";
  for (const situation of [hasNoDatabase, "that waits for the archive with a database"]) {
    for (const mode of modes) {
      test.concurrent(
        `${situation} in ${mode} mode`,
        async () => {
          await using archive = await makeArchive();
          await urlOf(archive.start("first", "sync"));
          if (situation !== hasNoDatabase) await archive.restore("second/a.db");
          const second = archive.start("second", mode);
          await until(() => second.output().includes('"waiting for the archive"'));
          second.kill("SIGTERM");
          const { code, stdout, stderr } = await second.ended;
          expect([code, stderr]).toEqual([0, ""]);
          expect(stdout).toContain('"stopped"');
          // It has not waited for the lease.
          expect(stdout).not.toMatch(/"listening"|"archive (restored|opened)"/);
        },
        TIMEOUT_MS,
      );
    }
  }

  test.concurrent(
    "that restores its database, and leaves no file, and no lease to wait for",
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
        expect(await archive.restore()).toEqual(new Set(written));
      },
      TIMEOUT_MS,
    );
  }
});
