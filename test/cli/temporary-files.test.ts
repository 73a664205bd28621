// Temporary files of commands: of those that were killed, and in a directory where others can create files.
import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { makeHarness } from "./harness.ts";

/** Temporary files of a dead process, and of a live one. */
const pids = { dead: Bun.spawnSync(["true"]).pid, alive: process.ppid };

const commands: [words: string, target: string, made: string[]][] = [
  ["export users --output u.csv", "u.csv", ["u.csv", "u.csv.sha256"]],
  ["backup b.db", "b.db", ["b.db"]],
  ["copy --to c.db", "c.db", ["c.db"]],
  ["restore backup.db --database-url r.db", "r.db", ["r.db", "r.db-serving"]],
];

/** SQLite would roll it back: then the database has one page. @see https://www.sqlite.org/fileformat2.html#the_rollback_journal */
const hotJournal = Buffer.from("d9d505f920a163d7".padEnd(1024, "0"), "hex");
for (const [at, value] of [1, 512, 4096].entries()) hotJournal.writeUInt32BE(value, 16 + 4 * at);

/** Puts the journal next to each temporary file while the work runs, as others can in a shared directory. */
async function whilePlanting<Result>(directory: string, work: Promise<Result>): Promise<Result> {
  while (Bun.peek.status(work) === "pending") {
    for (const name of readdirSync(directory).filter((each) => each.endsWith(".partial")))
      writeFileSync(join(directory, `${name}-journal`), hotJournal);
    await nextTurn();
  }
  return await work;
}

for (const [args, target, made] of commands) {
  test(`${args} removes the temporary files of a killed process, and uses no file next to its own`, async () => {
    using world = makeHarness();
    await world.run("token", "create", "a");
    const backup = world.at("backup.db");
    expect((await world.run("backup", backup)).code).toBe(0);
    const directory = world.at("new");
    mkdirSync(directory);
    const left = (pid: number) => `${target}.user-api-${pid}-0123abcd.partial`;
    mkdirSync(join(directory, left(pids.dead)));
    for (const name of [join(left(pids.dead), "new.db"), left(pids.alive)])
      writeFileSync(join(directory, name), "");
    const paths = args
      .split(" ")
      .map((word) => (/^.\.(csv|db)$/.test(word) ? join(directory, word) : word))
      .map((word) => (word === "backup.db" ? backup : word));
    const outcome = await whilePlanting(directory, world.run(...paths));
    expect(outcome).toMatchObject({ code: 0 });
    const found = readdirSync(directory).filter((name) => !name.endsWith("-journal"));
    expect(found.sort()).toEqual([...made, left(pids.alive)].sort());
  });
}

test("a database that is restored from an archive uses no file next to its temporary one", async () => {
  using world = makeHarness({ environment: { ARCHIVE_RESTORE: "if-missing" } });
  const archive = `file://${world.at("archive")}`;
  for (const name of ["archive", "new"]) mkdirSync(world.at(name));
  await (await world.serve("--archive-url", archive)).stop();
  const at = (name: string) => ["--database-url", world.at(`new/${name}.db`)];
  const serving = world.serve("--archive-url", archive, ...at("served"));
  await (await whilePlanting(world.at("new"), serving)).stop();
  const restoring = world.run("restore", "--from", archive, ...at("restored"));
  expect(await whilePlanting(world.at("new"), restoring)).toMatchObject({ code: 0 });
});
