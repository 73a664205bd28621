// A server starts with another state of its database than it had: what the archive has, and the database has not, must
// not be replaced by a new base.
import { expect } from "bun:test";
import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { runBinary } from "../support/program.ts";
import { createUser, makePlace, stop, urlOf } from "./archived-place.ts";
import { test as onBinary } from "./on-binary.ts";

const test = onBinary.concurrent;

const suffixes = ["", "-wal", "-archive"];
const withoutArchive = { ARCHIVE_URL: "", ARCHIVE_COMMIT: "async" };
const HAS_MORE =
  "ARCHIVE_URL: the archive has writes that this database does not have, e.g. because an older state of its files was put back: restore it with `user-api restore`, or choose another ARCHIVE_URL\n";

const HAS_LATER =
  /^ARCHIVE_URL: (segment 1 of generation 2 is missing|log\/\S+ is damaged), and the archive has later writes that this database does not have: put back .*--at/;

function copyFiles(from: string, to: string, which = suffixes): void {
  for (const suffix of which) {
    if (existsSync(from + suffix)) copyFileSync(from + suffix, to + suffix);
    else rmSync(to + suffix, { force: true });
  }
}

async function makeArchived(kind: "bucket" | "directory") {
  const place = await makePlace({ ARCHIVE_COMMIT: "sync" }, kind);
  const path = place.environment.DATABASE_URL;
  const older = place.at("older/a.db");
  mkdirSync(place.at("older"));
  /** Serves until the users are created. @param copy called while the server runs */
  async function serve(count: number, settings = {}, copy = () => {}): Promise<void> {
    const server = place.start(settings);
    const url = await urlOf(server);
    for (let at = 0; at < count; at += 1) expect((await createUser(url)).status).toBe(201);
    copy();
    await stop(server);
  }
  const keep = () => copyFiles(path, older);
  return { ...place, path, older, serve, keep };
}

test("a start with an archive is refused when an older state of all files was put back", async () => {
  await using archived = await makeArchived("bucket");
  const { environment, path, older, serve, keep, restore, start } = archived;
  await serve(3, {}, keep);
  await serve(3);
  copyFiles(older, path, ["", "-wal"]);
  const known = await restore();
  const { code, stderr } = await start().ended;
  expect([code, stderr]).toEqual([1, HAS_MORE]);
  expect(await restore()).toEqual(known);
  // The ways out.
  const command = ["restore", "--from", environment.ARCHIVE_URL];
  expect((await runBinary(command, environment)).code).toBe(0);
  await serve(1);
  expect(await restore()).toHaveLength(known.length + 1);
});

test.each([
  ["a segment that is missing", (segment: string) => rmSync(segment)],
  [
    "a segment that is damaged, and is the last one that can be read",
    (segment: string) => writeFileSync(segment, ""),
  ],
])("a start with an archive is refused when it lacks what follows %s", async (what, damage) => {
  await using archived = await makeArchived("directory");
  const { environment, path, older, serve, keep, at, start } = archived;
  const newer = at("newer.db");
  await serve(3, {}, keep);
  await serve(3);
  copyFiles(path, newer);
  copyFiles(older, path, ["", "-wal"]);
  const log = at("archive/log/00000002/0000000");
  const slots = readdirSync(log).sort();
  const isLast = what.includes("the last one");
  if (isLast) for (const slot of slots.splice(-1)) rmSync(`${log}/${slot}`);
  damage(`${log}/${slots.at(isLast ? -1 : 0)}`);
  const { code, stderr } = await start().ended;
  expect([code, stderr]).toEqual([1, expect.stringMatching(HAS_LATER)]);
  // The ways out.
  if (!isLast) return await serve(1, { DATABASE_URL: newer });
  const [, command = ""] = /`user-api (.+)`/.exec(stderr) ?? [];
  const restored = await runBinary([...command.split(" "), "--database-url", path], environment);
  expect(restored).toMatchObject({ code: 0 });
  await serve(1);
});

test("a start with an archive begins with a new base when the database has more, or a backup was restored", async () => {
  await using archived = await makeArchived("bucket");
  const { environment, serve, restore, at } = archived;
  await serve(3);
  await runBinary(["backup", at("backup.db")], environment);
  await serve(3, withoutArchive);
  await serve(1);
  expect(await restore()).toHaveLength(7);
  expect((await runBinary(["restore", at("backup.db")], environment)).code).toBe(0);
  const begun = archived.start();
  await urlOf(begun);
  begun.kill("SIGKILL");
  await begun.ended;
  await serve(1);
  expect(await restore()).toHaveLength(4);
});

test("a database is not archived to another archive, nor to an empty one, than its own", async () => {
  await using archived = await makeArchived("directory");
  const { path, serve, start, at } = archived;
  await serve(1);
  for (const name of ["empty", "other"]) mkdirSync(at(name));
  await serve(1, { ARCHIVE_URL: `file://${at("other")}`, DATABASE_URL: at("other.db") });
  for (const name of ["empty", "other"])
    for (const restore of ["never", "if-missing"]) {
      const settings = { ARCHIVE_URL: `file://${at(name)}`, ARCHIVE_RESTORE: restore };
      const { code, stderr } = await start(settings).ended;
      const problem = /^ARCHIVE_URL: it is empty or another archive, .* delete \S+a\.db-archive\n$/;
      expect([code, stderr]).toEqual([1, expect.stringMatching(problem)]);
    }
  expect(readdirSync(at("empty"))).toEqual([]);
  await serve(1);
  for (const suffix of ["", "-wal"]) rmSync(path + suffix, { force: true });
  const { code } = await start({ ARCHIVE_URL: `file://${at("empty")}` }).ended;
  expect(code).toBe(1);
});
