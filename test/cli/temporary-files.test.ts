// Temporary files of commands: of those that were killed, and in a directory where others can create files.
import { expect, test } from "bun:test";
import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Harness, makeHarness } from "./harness.ts";

/** Temporary files of a dead process, and of a live one. */
const pids = { dead: Bun.spawnSync(["true"]).pid, alive: process.ppid };

const commands: [words: string, target: string, made: string[]][] = [
  ["export users --output u.csv", "u.csv", ["u.csv", "u.csv.sha256"]],
  ["backup b.db", "b.db", ["b.db"]],
  ["copy --to c.db", "c.db", ["c.db"]],
  ["restore backup.db --database-url r.db", "r.db", ["r.db", "r.db-serving"]],
];

/** Creates a database with a token, and a backup of it. @returns the command with full paths, in a new directory */
async function prepare(world: Harness, args: string) {
  await world.run("token", "create", "real");
  const backup = world.at("backup.db");
  expect((await world.run("backup", backup)).code).toBe(0);
  const directory = world.at("new");
  mkdirSync(directory);
  const words = args
    .split(" ")
    .map((word) => (/^.\.(csv|db)$/.test(word) ? join(directory, word) : word))
    .map((word) => (word === "backup.db" ? backup : word));
  return { directory, words };
}

for (const [args, target, made] of commands) {
  test(`${args} removes the temporary files of a killed process`, async () => {
    using world = makeHarness();
    const { directory, words } = await prepare(world, args);
    const left = (pid: number) => `${target}.user-api-${pid}-0123abcd.partial`;
    mkdirSync(join(directory, left(pids.dead)));
    for (const name of [join(left(pids.dead), "new.db"), left(pids.alive)])
      writeFileSync(join(directory, name), "");
    expect(await world.run(...words)).toMatchObject({ code: 0 });
    expect(readdirSync(directory).sort()).toEqual([...made, left(pids.alive)].sort());
  });
}

/**
 * @returns a journal that SQLite would roll back: then the database next to it has the pages of this one
 * @see https://www.sqlite.org/fileformat2.html#the_rollback_journal
 */
function hotJournalOf(database: string): Buffer {
  const bytes = readFileSync(database);
  const pageBytes = bytes.readUInt16BE(16);
  const pages = bytes.length / pageBytes;
  const header = Buffer.alloc(512);
  header.set(Buffer.from("d9d505f920a163d7", "hex"));
  for (const [at, value] of [pages, 0, pages, header.length, pageBytes].entries())
    header.writeUInt32BE(value, 8 + 4 * at);
  const records = Array.from({ length: pages }, (_, at) => {
    const page = bytes.subarray(at * pageBytes, (at + 1) * pageBytes);
    const ends = Buffer.alloc(8);
    ends.writeUInt32BE(at + 1);
    let sum = 0;
    for (let byte = pageBytes - 200; byte > 0; byte -= 200) sum += page.readUInt8(byte);
    ends.writeUInt32BE(sum, 4);
    return Buffer.concat([ends.subarray(0, 4), page, ends.subarray(4)]);
  });
  return Buffer.concat([header, ...records]);
}

/** Puts the journal next to each temporary file while the work runs, as another user can in a shared directory. */
async function whilePlanting<Result>(
  directory: string,
  journal: string,
  work: Promise<Result>,
): Promise<Result> {
  let isRunning = true;
  const done = work.finally(() => {
    isRunning = false;
  });
  while (isRunning) {
    for (const name of readdirSync(directory).filter((each) => each.endsWith(".partial"))) {
      const planted = join(directory, `${name}-journal`);
      if (!existsSync(planted)) linkSync(journal, planted);
    }
    await nextTurn();
  }
  return await done;
}

async function makeJournal(world: Harness): Promise<string> {
  using attacker = makeHarness();
  await attacker.run("token", "create", "planted");
  const journal = world.at("journal");
  writeFileSync(journal, hotJournalOf(attacker.path));
  return journal;
}

for (const [args, target] of commands.filter(([args]) => /backup/.test(args))) {
  test(`${args} writes its own rows when a hot journal appears next to its temporary file`, async () => {
    using world = makeHarness();
    const { directory, words } = await prepare(world, args);
    const journal = await makeJournal(world);
    const outcome = await whilePlanting(directory, journal, world.run(...words));
    expect(outcome).toMatchObject({ code: 0 });
    const database = join(directory, target);
    const { stdout } = await world.run("token", "list", "--database-url", database);
    expect(stdout).toContain("\nreal ");
    expect(stdout).not.toContain("planted");
  });
}

test("what is restored from an archive has its own rows when a hot journal appears next to it", async () => {
  const bucket = { ARCHIVE_COMMIT: "sync", ARCHIVE_RESTORE: "if-missing" };
  using world = makeHarness({ environment: bucket });
  const url = `file://${world.at("archive")}`;
  mkdirSync(world.at("archive"));
  await world.run("token", "create", "real");
  await (await world.serve("--archive-url", url)).stop();
  const journal = await makeJournal(world);
  const directory = world.at("new");
  mkdirSync(directory);
  const planting = (work: Promise<unknown>) => whilePlanting(directory, journal, work);
  const at = (name: string) => ["--database-url", join(directory, name)];
  await planting(world.run("restore", "--from", url, ...at("a.db")));
  await planting((async () => (await world.serve("--archive-url", url, ...at("b.db"))).stop())());
  for (const name of ["a.db", "b.db"]) {
    const { stdout } = await world.run("token", "list", ...at(name));
    expect([name, stdout]).toEqual([name, expect.stringContaining("\nreal ")]);
    expect(stdout).not.toContain("planted");
  }
});
