// What a server does that has an archive and no database.
import { expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { encodeJson, generationKey } from "../../../src/sqlite/archive/format.ts";
import { requireDatabase } from "../../../src/sqlite/archive/missing.ts";
import { expectRejection } from "../../expect-error.ts";
import { keysOf, makeArchive, makeLease } from "./archived.ts";

/** As a server has left it that was killed before it had written its first base. */
async function makeBegun() {
  const archive = makeArchive();
  const generation = { number: 1, name: "killed", parent: null };
  await archive.storage.create(generationKey(1), encodeJson(generation));
  return archive;
}

test.each([true, false])(
  "a new database begins an archive without a base if ARCHIVE_RESTORE is if-missing: %p",
  async (restoreIfMissing) => {
    using archive = await makeBegun();
    let leases = 0;
    await requireDatabase(archive.storage, archive.path, {
      restoreIfMissing,
      async acquireLease() {
        leases += 1;
      },
      log() {},
    });
    expect([leases, existsSync(archive.path)]).toEqual([1, false]);
    const options = { lease: makeLease(2) };
    await using server = await archive.start(options);
    server.insert();
    await archive.expectComplete(server);
  },
);

test("no database is created if another server writes the first base meanwhile", async () => {
  using archive = await makeBegun();
  const opened = requireDatabase(archive.storage, archive.path, {
    restoreIfMissing: false,
    async acquireLease() {
      const first = await archive.start({ path: archive.at("first.db"), lease: makeLease(2) });
      await first.untilComplete();
      await first[Symbol.asyncDispose]();
    },
    log() {},
  });
  await expectRejection(opened, "operator", /^it has a database, but \S+ is missing: /);
});

/** An archive of a database that is lost, without the objects with these prefixes. */
async function makeIncomplete(...removed: string[]) {
  const archive = makeArchive();
  {
    await using lost = await archive.start({ path: archive.at("lost.db"), lease: makeLease(1) });
    lost.insert();
    await lost.untilComplete();
  }
  for (const prefix of removed) await archive.storage.remove(await keysOf(archive.storage, prefix));
  return archive;
}

const NO_COPY = "the archive has no complete copy of a database";

test.each([true, false])(
  "a new database begins an archive without its bases, with a warning, if ARCHIVE_RESTORE is if-missing: %p",
  async (restoreIfMissing) => {
    using archive = await makeIncomplete("bases/");
    await expectRejection(archive.restore(), "operator", NO_COPY);
    const logged: unknown[] = [];
    await requireDatabase(archive.storage, archive.path, {
      restoreIfMissing,
      acquireLease: async () => {},
      log: (...line) => logged.push(line),
    });
    expect(logged).toEqual([["warn", "archive needs attention", { reason: NO_COPY }]]);
  },
);

test.each([[["generations/"]], [["generations/", "log/"]]])(
  "no database is created if the archive has bases and lost all of %p",
  async (removed) => {
    using archive = await makeIncomplete(...removed);
    const isDamaged = "the archive is damaged: generations/00000001 is missing";
    const require = (restoreIfMissing: boolean) =>
      requireDatabase(archive.storage, archive.path, {
        restoreIfMissing,
        acquireLease: async () => {},
        log() {},
      });
    await expectRejection(
      require(false),
      "operator",
      /^it has a database, but \S+ is missing: run `user-api restore --from \S+ --database-url \S+`, or /,
    );
    await expectRejection(archive.restore(), "operator", isDamaged);
    await expectRejection(require(true), "operator", isDamaged);
  },
);

test("another database is refused if only an earlier generation has a base", async () => {
  using archive = makeArchive();
  {
    await using first = await archive.start({
      lease: makeLease(1),
    });
    await first.untilComplete();
  }
  const generation = { number: 2, name: "killed", parent: null };
  await archive.storage.create(generationKey(2), encodeJson(generation));
  const other = archive.start({ path: archive.at("other.db"), lease: makeLease(3) });
  await expectRejection(other, "operator", /^the archive belongs to another database: /);
});

test("a database is kept that appears while the lease is waited for", async () => {
  using archive = await makeIncomplete();
  writeFileSync(archive.path, "");
  const required = requireDatabase(archive.storage, archive.path, {
    restoreIfMissing: true,
    acquireLease: async () => writeFileSync(archive.path, "a database"),
    log() {},
  });
  await expectRejection(required, "operator", "the file already exists");
  expect(readFileSync(archive.path, "utf8")).toBe("a database");
});
