// What a server does that has an archive and no database.
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import type { Lease } from "../../../src/lease.ts";
import { encodeJson, generationKey } from "../../../src/sqlite/archive/format.ts";
import { requireDatabase } from "../../../src/sqlite/archive/missing.ts";
import { expectRejection } from "../../expect-error.ts";
import { contentOf, makeArchive, startArchived } from "./archived.ts";

/** A lease that no other process wants. */
function makeLease(number: number): Lease {
  return {
    acquire: async () => number,
    isHeld: () => true,
    whenLost: new Promise(() => {}),
    async release() {},
  };
}

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
    await using server = await startArchived(archive.path, archive.storage, options);
    server.insert();
    await server.untilComplete();
    expect(await archive.restore()).toEqual(contentOf(server.db));
  },
);

test("no database is created if another server writes the first base meanwhile", async () => {
  using archive = await makeBegun();
  const opened = requireDatabase(archive.storage, archive.path, {
    restoreIfMissing: false,
    async acquireLease() {
      const first = await startArchived(archive.at("first.db"), archive.storage, {
        lease: makeLease(2),
      });
      await first.untilComplete();
      await first[Symbol.asyncDispose]();
    },
    log() {},
  });
  await expectRejection(opened, "operator", /^it has a database, but \S+ is missing: /);
});

test("another database is refused if only an earlier generation has a base", async () => {
  using archive = makeArchive();
  {
    await using first = await startArchived(archive.path, archive.storage, {
      lease: makeLease(1),
    });
    await first.untilComplete();
  }
  const generation = { number: 2, name: "killed", parent: null };
  await archive.storage.create(generationKey(2), encodeJson(generation));
  const other = startArchived(archive.at("other.db"), archive.storage, { lease: makeLease(3) });
  await expectRejection(other, "operator", /^the archive belongs to another database: /);
});
