// A server starts with another state of its database than it had: what the archive has, and the database has not, must
// not be replaced by a new base.
import { describe, expect, test } from "bun:test";
import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { binary, runBinary } from "../support/program.ts";
import { createUser, makePlace, stop, urlOf } from "./archived-place.ts";

const suffixes = ["", "-wal", "-archive"];
const withoutArchive = { ARCHIVE_URL: "", ARCHIVE_COMMIT: "async" };
const HAS_MORE =
  "ARCHIVE_URL: the archive has writes that this database does not have, e.g. because an older state of its files was put back: restore it with `user-api restore`, or choose another ARCHIVE_URL\n";

const HAS_LATER =
  /^ARCHIVE_URL: (segment 1 of generation 2 is missing|log\/\S+ is damaged|no base can be read), and the archive has later writes that this database does not have: put back .*(--at|another ARCHIVE_URL)/;

/** Copies files of a database that exist, and deletes the others. */
function copyFiles(from: string, to: string, which = suffixes): void {
  for (const suffix of which) {
    if (existsSync(from + suffix)) copyFileSync(from + suffix, to + suffix);
    else rmSync(to + suffix, { force: true });
  }
}

async function makeArchived(commit: string, kind: "bucket" | "directory") {
  const place = await makePlace({ ARCHIVE_COMMIT: commit }, kind);
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

type Archived = Awaited<ReturnType<typeof makeArchived>>;

/** What happens to the database after a first server. @returns the path with which the next one starts */
const ways: Readonly<Record<string, (archived: Archived) => Promise<string>>> = {
  async "an older state of all files was put back"({ path, older, serve, keep }) {
    await serve(3, {}, keep);
    await serve(3);
    copyFiles(older, path, ["", "-wal"]);
    return path;
  },
  async "a copy of live files has gone another way"({ path, older, serve, keep }) {
    await serve(3, {}, keep);
    await serve(1);
    copyFiles(path, older, ["-archive"]);
    await serve(4, { ...withoutArchive, DATABASE_URL: older });
    return older;
  },
};

describe.skipIf(binary === "")("a start with an archive is refused", () => {
  for (const [at, [what, change]] of Object.entries(ways).entries()) {
    const [commit, kind] =
      at % 2 === 0 ? (["sync", "bucket"] as const) : (["async", "directory"] as const);
    test.concurrent(`when ${what} in ${commit} mode`, async () => {
      await using archived = await makeArchived(commit, kind);
      const path = await change(archived);
      const known = await archived.restore();
      const server = archived.start({ DATABASE_URL: path });
      expect(await server.listening).toBeNull();
      const { code, stderr } = await server.ended;
      expect({ code, stderr }).toEqual({ code: 1, stderr: HAS_MORE });
      expect(await archived.restore()).toEqual(known);
      // The ways out.
      const command = ["restore", "--from", archived.environment.ARCHIVE_URL];
      const restored = await runBinary([...command, "--database-url", path], archived.environment);
      expect(restored.code).toBe(0);
      await archived.serve(1, { DATABASE_URL: path });
      expect(await archived.restore()).toHaveLength(known.length + 1);
    });
  }
});

test.concurrent.skipIf(binary === "").each([
  ["a segment that is missing", (segment: string) => rmSync(segment)],
  [
    "a segment that is damaged, and is the last one that can be read",
    (segment: string) => writeFileSync(segment, ""),
  ],
  ["the only base, which is damaged", (_: string, base: string) => writeFileSync(base, "")],
])(
  "a start with an archive is refused when it lacks what follows %s",
  async (what, damage) => {
    await using archived = await makeArchived("sync", "directory");
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
    const [base = ""] = readdirSync(at("archive/bases"), { recursive: true }).map(String);
    damage(`${log}/${slots.at(isLast ? -1 : 0)}`, at(`archive/bases/${base}`));
    const { code, stderr } = await start().ended;
    expect([code, stderr]).toEqual([1, expect.stringMatching(HAS_LATER)]);
    // The ways out.
    const databases = { DATABASE_URL: newer };
    if (!isLast) return await serve(1, databases);
    const [, command = ""] = /`user-api (.+)`/.exec(stderr) ?? [];
    const restored = await runBinary([...command.split(" "), "--database-url", path], environment);
    expect(restored).toMatchObject({ code: 0 });
    await serve(1);
  },
  60_000,
);

test.concurrent.skipIf(binary === "")(
  "a start with an archive begins with a new base when the database has more, or a backup was restored",
  async () => {
    await using archived = await makeArchived("sync", "bucket");
    const { environment, path, serve, restore, at } = archived;
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
    expect(existsSync(path)).toBeTrue();
  },
  180_000,
);

test.concurrent.skipIf(binary === "")(
  "a database is not archived to another archive, nor to an empty one, than its own",
  async () => {
    await using archived = await makeArchived("sync", "directory");
    const { path, serve, start, at } = archived;
    await serve(1);
    for (const name of ["empty", "other"]) mkdirSync(at(name));
    const other = { ARCHIVE_URL: `file://${at("other")}`, DATABASE_URL: at("other.db") };
    await serve(1, other);
    for (const name of ["empty", "other"])
      for (const restore of ["never", "if-missing"]) {
        const settings = { ARCHIVE_URL: `file://${at(name)}`, ARCHIVE_RESTORE: restore };
        const { code, stderr } = await start(settings).ended;
        const problem =
          /^ARCHIVE_URL: it is empty or another archive, .* delete \S+a\.db-archive\n$/;
        expect([code, stderr]).toEqual([1, expect.stringMatching(problem)]);
      }
    expect(readdirSync(at("empty"))).toEqual([]);
    await serve(1);
    rmSync(path);
    rmSync(`${path}-wal`, { force: true });
    const { code } = await start({ ARCHIVE_URL: `file://${at("empty")}` }).ended;
    expect(code).toBe(1);
  },
  180_000,
);
