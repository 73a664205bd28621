// What a server does that has an archive and no database.
import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { type ArchiveSettings, archiveRestores } from "../../../src/domain/archive.ts";
import { ensureDatabase } from "../../../src/sqlite/archive/follow/prepare.ts";
import { encodeJson, type Generation } from "../../../src/sqlite/archive/format.ts";
import { generationKey } from "../../../src/sqlite/archive/keys.ts";
import { expectRejection } from "../../support/expect-error.ts";
import {
  type Archive,
  adviceOf,
  defaults,
  filesOf,
  makeArchive,
  makeClock,
  serve,
} from "./archived.ts";

function ensure(
  { storage, path }: Archive,
  restore: ArchiveSettings["restore"],
  onSleep = () => {},
) {
  return ensureDatabase({
    storage,
    files: filesOf(path),
    ...defaults,
    restore,
    machine: makeClock(onSleep),
    signal: new AbortController().signal,
    log() {},
  });
}

/** As a server has left it that was killed before it had written its first base. */
async function putRecord(archive: Archive, number: number): Promise<Archive> {
  const log = { previousEnd: 0, parent: null };
  const server = { archive: "archive", name: "killed", identity: "killed", holder: "killed" };
  const record: Generation = { number, ...log, ...server, commit: "async" };
  await archive.storage.put(generationKey(number), encodeJson(record));
  return archive;
}

/** An archive of a database that is lost, without the objects with these prefixes. */
async function makeIncomplete(...removed: string[]) {
  const archive = makeArchive();
  await serve(archive, 1, { path: archive.at("lost.db") });
  for (const prefix of removed) await archive.storage.remove(await archive.keys(prefix));
  return archive;
}

test.each([
  ["that was begun", () => putRecord(makeArchive(), 1)],
  ["that lost its bases", () => makeIncomplete("bases/")],
  [
    "that lost all but its chunks",
    () => makeIncomplete("bases/", "log/", "heartbeats/", "generations/"),
  ],
])("no database is created or restored from an archive %s", async (_title, make) => {
  using archive = await make();
  const problem = "it has objects, but no complete base";
  const advice = "put back what was deleted, or choose another ARCHIVE_URL";
  for (const restore of archiveRestores)
    await expectRejection(ensure(archive, restore), "operator", `${problem}: ${advice}`);
  await expectRejection(archive.restore(), "operator", problem);
});

test("no database is created if the records of an archive are missing", async () => {
  using archive = await makeIncomplete("generations/", "log/");
  const isMissing = /^the archive is damaged: .* is missing/;
  await expectRejection(
    ensure(archive, "never"),
    "operator",
    /^it has a database, but \S+ is missing/,
  );
  await expectRejection(ensure(archive, "if-missing"), "operator", isMissing);
  await expectRejection(archive.restore(), "operator", isMissing);
  await archive.storage.remove([
    ...(await archive.keys("bases/")),
    ...(await archive.keys("chunks/")),
  ]);
  for (const restore of archiveRestores)
    await expectRejection(ensure(archive, restore), "operator", /no complete base/);
});

test("another database is refused at once if only an earlier generation has a base", async () => {
  using archive = await makeIncomplete();
  await putRecord(archive, 2);
  const clock = makeClock();
  const other = archive.start({ path: archive.at("other.db"), clock });
  await expectRejection(other, "operator", /^the archive belongs to another database: /);
  // It has not waited for the end of that generation.
  expect(clock.sleeps()).toBe(0);
});

test("a database is not restored from the log of a killed server that lacks a segment", async () => {
  using archive = makeArchive();
  await serve(archive, 4, { path: archive.at("lost.db") });
  const [lost = "", , closed = ""] = (await archive.keys("log/")).slice(-3);
  await archive.storage.remove([closed]);
  const problem = await archive.lose(lost);
  // The first one seals the log.
  for (let start = 0; start < 2; start += 1) await adviceOf(ensure(archive, "if-missing"), problem);
});

test("a database is kept that appears while the archive is waited for", async () => {
  using archive = await makeIncomplete();
  // Another server, which was killed.
  await archive.storage.remove((await archive.keys("log/")).slice(-1));
  writeFileSync(archive.path, "");
  const required = ensure(archive, "if-missing", () => writeFileSync(archive.path, "a database"));
  await expectRejection(required, "operator", "the file already exists");
  expect(readFileSync(archive.path, "utf8")).toBe("a database");
});
