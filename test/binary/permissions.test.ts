// Files hold personal data, and a lock on them stops the server: only the user of the program may read them, whatever the
// umask of the shell is. In a directory such as /tmp, other users can put links, and files next to a database.
import { expect } from "bun:test";
import * as fs from "node:fs";
import { asNobody } from "../postgres/instance.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { binary, runBinary, runProgram, startProgram } from "../support/program.ts";
import { urlOf } from "./archived-place.ts";
import { failureOf, isRoot, test, testIf } from "./on-binary.ts";

function withOpenUmask(...args: string[]): string[] {
  return ["sh", "-c", 'umask 0; exec "$@"', "sh", binary, ...args];
}

/** @returns the permissions of all files in the directory, e.g. `600 a.db` */
function modesIn(path: string): string[] {
  const names = fs.readdirSync(path, { recursive: true, encoding: "utf8" }).sort();
  return names.map(
    (name) => `${(fs.statSync(`${path}/${name}`).mode & 0o777).toString(8)} ${name}`,
  );
}

test("only the owner can read the files that a server and commands write", async () => {
  using directory = makeDirectory();
  const { at } = directory;
  const env = { DATABASE_URL: at("data/a.db"), PATH: Bun.env["PATH"] ?? "", PORT: "0" };
  fs.writeFileSync(at("input"), "{}\n", { mode: 0o600 });
  for (const [args, expected] of [
    [["token", "create", "first"], 0],
    [["backup", at("backup.db")], 0],
    [["export", "users", "--output", at("users.csv")], 0],
    [["import", "users", at("input"), "--rejects", at("rejects")], 1],
    [["copy", "--to", at("copy.db")], 0],
    [["restore", at("backup.db")], 0],
  ] as const) {
    const { code, stderr } = await runProgram(withOpenUmask(...args), { env });
    expect([code, args, stderr]).toEqual([expected, args, expect.anything()]);
  }
  const server = startProgram(withOpenUmask("serve"), { env });
  expect(await server.listening).not.toBeNull();
  const modes = modesIn(directory.path);
  expect(modes).toContain("700 data");
  for (const name of ["rejects", ...["", "-serving", "-shm", "-wal"].map((it) => `data/a.db${it}`)])
    expect(modes).toContain(`600 ${name}`);
  server.kill("SIGTERM");
  await server.ended;
  const files = modes.filter((mode) => mode !== "700 data");
  expect(files.map((mode) => mode.slice(0, 3))).toEqual(files.map(() => "600"));
  expect(files.length).toBeGreaterThan(8);
});

const onRoot = testIf(isRoot);

const runAsNobody = (command: string, env: Readonly<Record<string, string>> = {}) =>
  runProgram(asNobody([binary, ...command.split(" ")]), { env: { PATH: Bun.env["PATH"], ...env } });

async function idOfNobody(): Promise<number> {
  const { stdout } = await runProgram(asNobody(["id", "-u"]), { env: { PATH: Bun.env["PATH"] } });
  return Number(stdout.trim());
}

onRoot("commands say that permission is denied, and name the owner of a file", async () => {
  using directory = makeDirectory();
  const path = directory.at("data/a.db");
  await fillDatabase(path, 1);
  // As a server of root has left it.
  fs.writeFileSync(`${path}-serving`, "", { mode: 0o600 });
  // A directory that it may not search, or create.
  for (const command of ["check", "export users", "migrate"]) {
    const why = await failureOf(runAsNobody(command, { DATABASE_URL: path }));
    expect(why).toBe(`Cannot open ${path}: permission denied\n`);
  }
  const backups = directory.at("backups");
  const why = await failureOf(runAsNobody(`backup --directory ${backups}`));
  expect(why).toBe(`Cannot create ${backups}: permission denied\n`);

  const nobody = await idOfNobody();
  for (const name of [directory.path, directory.at("data")]) fs.chownSync(name, nobody, -1);
  const serve = () => failureOf(runAsNobody("serve", { DATABASE_URL: path, PORT: "0" }));
  // As root, other programs create files that every user can read.
  for (const mode of [0o644, 0o600]) {
    fs.chmodSync(path, mode);
    const owner = `belongs to user 0 with mode ${mode.toString(8)}`;
    const denied = `permission denied: ${path} ${owner}, and this process runs as user ${nobody}`;
    expect(await serve()).toBe(`Cannot open ${path}: ${denied}\n`);
  }
  fs.chownSync(path, nobody, -1);
  expect(await serve()).toContain(`permission denied: ${path}-serving belongs to user 0`);
  expect(fs.readdirSync(directory.at("data")).sort()).toEqual(["a.db", "a.db-serving"]);
});

onRoot("a server of another user opens what root has restored from its archive", async () => {
  using directory = makeDirectory();
  const archive = directory.at("archive");
  const env = {
    DATABASE_URL: directory.at("data/a.db"),
    ARCHIVE_URL: `file://${archive}`,
    PATH: Bun.env["PATH"] ?? "",
    PORT: "0",
  };
  const nobody = await idOfNobody();
  for (const path of [directory.path, archive, directory.at("data")]) {
    fs.mkdirSync(path, { recursive: true });
    fs.chownSync(path, nobody, -1);
  }
  const serve = async () => {
    const server = startProgram(asNobody([binary, "serve"]), { env });
    await urlOf(server);
    server.kill("SIGTERM");
    await server.ended;
  };
  await serve();
  // Over the previous database; next to its lock file alone.
  for (const hasPrevious of [true, false]) {
    if (!hasPrevious) fs.rmSync(env.DATABASE_URL);
    const { code, stderr } = await runBinary(["restore", "--from", env.ARCHIVE_URL], env);
    expect([code, stderr]).toEqual([0, expect.anything()]);
    await serve();
  }
  const marker = `${env.DATABASE_URL}-archive`;
  fs.chownSync(marker, 0, -1);
  const why = `${marker} belongs to user 0 with mode 600, and this process runs as user ${nobody}`;
  expect(await failureOf(runAsNobody("serve", env))).toBe(
    `ARCHIVE_URL: permission denied: ${why}\n`,
  );
});

/** Neither root nor the owner of a file. */
const OTHER = 4321;

async function makeFiles(directory: TemporaryDirectory) {
  const path = directory.at("data/a.db");
  const backup = directory.at("shared/b.db");
  fs.mkdirSync(directory.at("shared"));
  await fillDatabase(path, 2, 1);
  await runBinary(["backup", backup], { DATABASE_URL: path });
  return { path, backup };
}

const run = (command: string, database: string) =>
  runBinary(command.split(" "), { DATABASE_URL: database, PORT: "0" });

function putForeign(path: string, content = ""): void {
  fs.writeFileSync(path, content);
  fs.chownSync(path, OTHER, OTHER);
}

onRoot("commands fail when a file of another user is next to the database", async () => {
  using directory = makeDirectory();
  const { path, backup } = await makeFiles(directory);
  const copy = directory.at("copy.db");
  const commands = [
    ...["check", "export users", "token list", "token create x", "migrate", "serve"],
    ...[`backup ${copy}`, `restore ${backup} --database-url ${path}`],
  ];
  const expectForeign = async (command: string, suffix: string) => {
    const why = await failureOf(run(command, backup));
    expect(why).toContain(`${suffix} belongs to user ${OTHER}, who`);
  };
  for (const suffix of ["-wal", "-journal"]) {
    putForeign(backup + suffix, "x".repeat(4200));
    for (const command of commands) await expectForeign(command, suffix);
    // The owner of the database, and its group, may write to the database itself.
    fs.chownSync(backup, OTHER, OTHER);
    expect((await run("check", backup)).stderr).not.toContain("belongs to user");
    fs.chownSync(backup, 0, 0);
    fs.rmSync(backup + suffix, { force: true });
  }
  // Those that `copy` and `backup` do not reject in any case.
  for (const suffix of ["-serving", "-archive"]) {
    putForeign(copy + suffix);
    for (const command of [`copy --to ${copy}`, `backup ${copy}`])
      await expectForeign(command, suffix);
    fs.rmSync(copy + suffix);
  }
});

onRoot("restore and migrate do not follow links of another user", async () => {
  using directory = makeDirectory();
  const { at } = directory;
  const { path, backup } = await makeFiles(directory);
  const database = at("drill/user-api.db");
  const victim = at("victim");
  fs.writeFileSync(victim, "precious");
  fs.mkdirSync(at("drill"));
  fs.chownSync(at("drill"), OTHER, OTHER);
  const plant = (target: string, link: string) => {
    fs.symlinkSync(target, link);
    fs.lchownSync(link, OTHER, OTHER);
  };
  const expectFailure = async (command: string, to: string, why: string) =>
    expect(await failureOf(run(command, to))).toContain(why);
  // In place of the database, of its lock file, and of the directory.
  plant(victim, database);
  const link = `${database} is a link of user ${OTHER} to a file of another user`;
  await expectFailure(`restore ${backup}`, database, link);
  plant(path, at("link.db"));
  await expectFailure("migrate", at("link.db"), "is a link of user");
  fs.rmSync(database);
  plant(at("new"), `${database}-serving`);
  for (const command of [`restore ${backup}`, "serve"])
    await expectFailure(command, database, "-serving is a symbolic link");
  fs.rmSync(`${database}-serving`);
  plant(at("data"), at("elsewhere"));
  await expectFailure(`restore ${backup}`, at("elsewhere/a.db"), "a link of");
  for (const command of [
    `backup ${at("elsewhere/b.db")}`,
    `copy --to ${at("elsewhere/b.db")}`,
    `export users --output ${at("elsewhere/b.csv")}`,
    `export users --force --output ${at("link.db")}`,
  ])
    await expectFailure(command, backup, "is a link of user");
  expect(await Bun.file(victim).text()).toBe("precious");
  expect(fs.existsSync(at("new"))).toBe(false);
  expect(fs.readdirSync(at("drill"))).toEqual([]);
  // Nor does the database belong to the owner of the directory.
  expect((await run(`restore ${backup}`, database)).code).toBe(0);
  expect(fs.statSync(database).uid).toBe(0);
  // A link of root, and one to a file of the same user, are followed.
  fs.symlinkSync(path, at("own.db"));
  expect((await run("check", at("own.db"))).code).toBe(0);
  fs.chownSync(path, OTHER, OTHER);
  expect((await run("check", at("link.db"))).code).toBe(0);
});
