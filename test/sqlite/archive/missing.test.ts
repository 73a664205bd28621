// What a server does that has an archive and no database.
import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { encodeJson, generationKey } from "../../../src/sqlite/archive/format.ts";
import { requireDatabase } from "../../../src/sqlite/whole/missing.ts";
import { expectRejection } from "../../support/expect-error.ts";
import { keysOf, makeArchive, makeLease } from "./archived.ts";

/** As a server has left it that was killed before it had written its first base. */
async function makeBegun() {
  const archive = makeArchive();
  const generation = { number: 1, name: "killed", parent: null };
  await archive.storage.create(generationKey(1), encodeJson(generation));
  return archive;
}

test("a database is restored if another server writes the first base while the lease is waited for", async () => {
  using archive = await makeBegun();
  const opened = requireDatabase(archive.storage, archive.path, {
    restoreIfMissing: true,
    async acquireLease() {
      const first = await archive.start({ path: archive.at("first.db"), lease: makeLease(2) });
      await first.untilComplete();
      await first[Symbol.asyncDispose]();
      writeFileSync(archive.path, "a database");
    },
    log() {},
  });
  await expectRejection(opened, "operator", "the file already exists");
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

test.each([
  ["that was begun", makeBegun, "generations/"],
  ["that lost its bases", () => makeIncomplete("bases/"), "generations/, log/, chunks/"],
  [
    "that lost all but its chunks",
    () => makeIncomplete("bases/", "log/", "generations/"),
    "chunks/",
  ],
  [
    "that lost all but its segments",
    () => makeIncomplete("bases/", "chunks/", "generations/"),
    "log/",
  ],
])("no database is created or restored from an archive %s", async (_title, make, used) => {
  using archive = await make();
  const problem = `has objects in ${used}, but no complete base`;
  for (const restoreIfMissing of [true, false]) {
    const required = requireDatabase(archive.storage, archive.path, {
      restoreIfMissing,
      acquireLease: async () => {},
      log() {},
    });
    const advice = "put back what was deleted, or choose another ARCHIVE_URL";
    await expectRejection(required, "operator", `it ${problem}: ${advice}`);
  }
  await expectRejection(archive.restore(), "operator", `the archive ${problem}`);
});

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
