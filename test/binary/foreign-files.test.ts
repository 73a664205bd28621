// In a directory such as /tmp, other users can put links, and files next to a database.
import { expect } from "bun:test";
import {
  chownSync,
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { runBinary } from "../support/program.ts";
import { test as onBinary } from "./on-binary.ts";

const test = onBinary.if(process.getuid?.() === 0);

/** Neither root nor the owner of a file. */
const OTHER = 4321;

async function makeFiles(directory: TemporaryDirectory) {
  const path = directory.at("data/a.db");
  const backup = directory.at("shared/b.db");
  mkdirSync(directory.at("shared"));
  await fillDatabase(path, 2, 1);
  await runBinary(["backup", backup], { DATABASE_URL: path });
  return { path, backup };
}

/** A command fails with one line on stderr. @returns the line */
async function failureOf(args: readonly string[], database: string): Promise<string> {
  const { code, stdout, stderr } = await runBinary(args, { DATABASE_URL: database, PORT: "0" });
  expect([args, code, stdout]).toEqual([args, 1, ""]);
  expect(stderr.split("\n")).toHaveLength(2);
  return stderr;
}

test("commands fail when a file of another user is next to the database", async () => {
  using directory = makeDirectory();
  const { path, backup } = await makeFiles(directory);
  const copy = directory.at("copy.db");
  const commands = ["check", "export users", "token list", "token create x", "migrate", "serve"];
  for (const suffix of ["-wal", "-journal"]) {
    writeFileSync(backup + suffix, "x".repeat(4200));
    chownSync(backup + suffix, OTHER, OTHER);
    for (const args of [...commands.map((command) => command.split(" ")), ["backup", copy]]) {
      expect(await failureOf(args, backup)).toContain(`${suffix} belongs to user ${OTHER}, who`);
    }
    const why = await failureOf(["restore", backup], path);
    expect(why).toContain(`${suffix} belongs to user ${OTHER}, who`);
    // The owner of the database, and its group, may write to the database itself.
    chownSync(backup, OTHER, OTHER);
    const { stderr } = await runBinary(["check"], { DATABASE_URL: backup });
    expect(stderr).not.toContain("belongs to user");
    chownSync(backup, 0, 0);
    rmSync(backup + suffix, { force: true });
  }
  // Those that `copy` and `backup` do not reject in any case.
  for (const suffix of ["-serving", "-archive"]) {
    writeFileSync(copy + suffix, "");
    chownSync(copy + suffix, OTHER, OTHER);
    for (const command of ["copy --to", "backup"]) {
      const why = await failureOf([...command.split(" "), copy], backup);
      expect(why).toContain(`${suffix} belongs to user ${OTHER}, who`);
    }
    rmSync(copy + suffix);
  }
});

test("restore and migrate do not follow links of another user", async () => {
  using directory = makeDirectory();
  const { path, backup } = await makeFiles(directory);
  const drill = directory.at("drill");
  const database = `${drill}/user-api.db`;
  const victim = directory.at("victim");
  writeFileSync(victim, "precious");
  mkdirSync(drill);
  chownSync(drill, OTHER, OTHER);
  const plant = (target: string, link: string) => {
    symlinkSync(target, link);
    lchownSync(link, OTHER, OTHER);
  };
  // In place of the database, of its lock file, and of the directory.
  plant(victim, database);
  const link = `${database} is a link of user ${OTHER} to a file of another user`;
  expect(await failureOf(["restore", backup], database)).toContain(link);
  plant(path, directory.at("link.db"));
  expect(await failureOf(["migrate"], directory.at("link.db"))).toContain("is a link of user");
  rmSync(database);
  plant(directory.at("new"), `${database}-serving`);
  for (const args of [["restore", backup], ["serve"]]) {
    expect(await failureOf(args, database)).toContain("-serving is a symbolic link");
  }
  rmSync(`${database}-serving`);
  plant(directory.at("data"), directory.at("elsewhere"));
  const elsewhere = directory.at("elsewhere/a.db");
  expect(await failureOf(["restore", backup], elsewhere)).toContain("a link of");
  for (const [command, name] of [
    ["backup", "elsewhere/b.db"],
    ["copy --to", "elsewhere/b.db"],
    ["export users --output", "elsewhere/b.csv"],
    ["export users --force --output", "link.db"],
  ] as const) {
    const args = [...command.split(" "), directory.at(name)];
    expect(await failureOf(args, backup)).toContain("is a link of user");
  }
  expect(await Bun.file(victim).text()).toBe("precious");
  expect(existsSync(directory.at("new"))).toBe(false);
  expect(readdirSync(drill)).toEqual([]);
  // A link of root, and one to a file of the same user, are followed.
  symlinkSync(path, directory.at("own.db"));
  expect((await runBinary(["check", "--database-url", directory.at("own.db")])).code).toBe(0);
  chownSync(path, OTHER, OTHER);
  expect((await runBinary(["check", "--database-url", directory.at("link.db")])).code).toBe(0);
});

test("a restored database belongs to root when root runs the command", async () => {
  using directory = makeDirectory();
  const { backup } = await makeFiles(directory);
  const drill = directory.at("drill");
  const database = `${drill}/user-api.db`;
  mkdirSync(drill);
  chownSync(drill, OTHER, OTHER);
  const restore = async () => {
    const { code, stderr } = await runBinary(["restore", backup], { DATABASE_URL: database });
    expect([code, stderr]).toEqual([0, expect.anything()]);
    return statSync(database).uid;
  };
  expect(await restore()).toBe(0);
  // Unless the lock file or the database of a server was there.
  rmSync(database);
  chownSync(`${database}-serving`, OTHER, OTHER);
  expect(await restore()).toBe(OTHER);
  expect(await restore()).toBe(OTHER);
});
