// What file systems lack: hard links, owners, permissions, space, shared memory; second names, mounts, and syncs.
// io-errors-of-requests.test.ts makes each system call fail as if the disk were full.
import { expect } from "bun:test";
import * as fs from "node:fs";
import { join } from "node:path";
import { newEmail } from "../http/make.ts";
import { startServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { binary, runBinary, runProgram } from "../support/program.ts";
import { fillDisk, mountDisk, untilHealth } from "./disk.ts";
import { failureOf, isRoot, testIf } from "./on-binary.ts";
import { runWithFault, skipTraced } from "./strace.ts";

testIf(!skipTraced && isRoot)("backups need no links, owners or permissions", async () => {
  using directory = makeDirectory();
  const path = directory.at("a.db");
  const copy = directory.at("copy.db");
  await fillDatabase(path, 3, 2);
  fs.writeFileSync(`${path}-serving`, "");
  for (const calls of ["link,linkat", "chown,fchown,lchown,fchownat", "chmod,fchmod,fchmodat"]) {
    fs.chownSync(path, 4321, 4321);
    const why = "the file system refuses the owner and the permissions of";
    const warning = calls.startsWith("link") ? "" : `Needs attention: ${why} ${path}\n`;
    const made = await runWithFault({ calls, error: "EPERM" }, path, ["backup", copy]);
    expect([made.stderr, made.code], calls).toEqual([warning, 0]);
    expect(made.injected).not.toBeEmpty();
    // Permissions of the original are not for another group.
    expect(fs.statSync(copy).mode & 0o077).toBe(0);
    const restored = await runWithFault({ calls, error: "EPERM" }, path, ["restore", copy]);
    expect([restored.stderr, restored.code], calls).toEqual([warning, 0]);
    expect((await runBinary(["check", "--database-url", path])).stdout).toBe("ok\n");
    fs.rmSync(copy);
  }
  expect(fs.readdirSync(directory.path).filter((name) => name.includes("partial"))).toEqual([]);
});

/** A shell that mounts the first path alone at the second one, then runs the rest, in a separate mount namespace. */
const mount = 'mount --bind "$1" "$2"; shift 2; exec "$@"';
const mountAlone = ["unshare", "-m", "sh", "-c", mount, "sh"];
const canMount = Bun.spawnSync(["unshare", "-m", "mount", "-t", "tmpfs", "x", "/mnt"]).success;

testIf(canMount)("a database that is mounted without its directory is refused", async () => {
  using directory = makeDirectory();
  const path = directory.at("a.db");
  const backup = directory.at("backup.db");
  // Linux escapes the space.
  const mounted = directory.at("a container/a.db");
  const link = directory.at("link.db");
  fs.mkdirSync(directory.at("a container"));
  fs.symlinkSync(mounted, link);
  fs.writeFileSync(mounted, "");
  await fillDatabase(path, 3);
  await runBinary(["backup", backup], { DATABASE_URL: path });
  const env = { PATH: Bun.env["PATH"], PORT: "0" };
  const runAt = (file: string, database: string, ...args: string[]) =>
    runProgram([...mountAlone, file, mounted, binary, ...args, "--database-url", database], {
      env,
    });
  const why =
    "the file is mounted without its directory, where recent writes are: mount the directory\n";
  for (const args of [["token", "create", "b"], ["check"], ["restore", backup], ["serve"]]) {
    const attempt = args[0] === "restore" ? `restore ${backup}` : `open ${link}`;
    expect(await failureOf(runAt(path, link, ...args))).toBe(`Cannot ${attempt}: ${why}`);
  }
  expect(fs.readdirSync(directory.at("a container"))).toEqual(["a.db"]);
  expect((await runAt(backup, mounted, "check")).stdout).toBe("ok\n");
  expect((await runAt(backup, directory.at("new.db"), "restore", mounted)).code).toBe(0);
});

testIf(!skipTraced)("commands name the file system when it has no shared memory", async () => {
  using directory = makeDirectory();
  const path = directory.at("a.db");
  await fillDatabase(path, 3);
  const fault = { calls: "mmap", error: "ENODEV", paths: [`${path}-shm`] };
  const why = await failureOf(runWithFault(fault, path, ["token", "create", "a"]));
  expect(why).toStartWith(`Cannot open ${path}: its file system (`);
  expect(why).toEndWith(") lacks the shared memory that SQLite needs: use a local disk\n");
});

const tiny = binary === "" ? null : mountDisk(4 * 2 ** 20);
testIf(tiny !== null)("commands print one line and create nothing on a full disk", async () => {
  using disk = mountDisk(400_000) ?? makeDirectory();
  // Elsewhere: files that are removed while they are open need space until they are closed.
  using directory = makeDirectory();
  await fillDatabase(directory.at("a.db"), 3, 2);
  fs.copyFileSync(directory.at("a.db"), disk.at("a.db"));
  fillDisk(disk.at("filler"));
  for (const line of ["a.db token create a", "a.db check", "a.db serve", "new.db serve"]) {
    const [file = "", ...args] = line.split(" ");
    const why = await failureOf(runBinary(args, { DATABASE_URL: disk.at(file), PORT: "0" }));
    expect(why).toBe(`Cannot open ${disk.at(file)}: the disk is full\n`);
  }
  expect(fs.readdirSync(disk.path)).not.toContain("new.db");
});

testIf(tiny !== null)("health is 503 when the disk has room for a page only", async () => {
  const directory = tiny ?? makeDirectory();
  const filler = directory.at("filler");
  await using server = await startServer({}, directory);
  const create = () => server.call("POST", "/users", { body: { email: newEmail() } });
  expect((await create()).status).toBe(201);
  fillDisk(filler);
  fs.truncateSync(filler, fs.statSync(filler).size - 2 * 4096);
  const error = "the database cannot be written at the moment";
  expect(await create()).toMatchObject({ status: 503, json: { error } });
  // The first check: no earlier result is reused.
  expect((await server.call("GET", "/health", { token: null })).status).toBe(503);
  fs.rmSync(filler);
  await untilHealth(server, 200);
  expect((await create()).status).toBe(201);
});

/** Runs a command under strace. @returns its syncs and renames in this directory, in order */
async function traceNames(
  directory: string,
  args: readonly string[],
  options: readonly string[] = [],
): Promise<string[]> {
  const trace = join(directory, "trace");
  const calls = "trace=fsync,fdatasync,link,linkat,rename,renameat,renameat2";
  const strace = ["strace", "-f", "-y", "-s", "500", "-e", calls, "-o", trace, ...options];
  const env = { DATABASE_URL: join(directory, "sync.db") };
  const { code, stderr } = await runProgram([...strace, binary, ...args], { env });
  expect(code, stderr).toBe(0);
  const shown = (path = "") =>
    path.replace(directory, ".").replace(/\.user-api-\d+-[0-9a-f]{8}\./, ".*.");
  return (await Bun.file(trace).text()).split("\n").flatMap((line) => {
    const [, synced] = /sync\(\d+<(.*)>\) += 0$/.exec(line) ?? [];
    if (synced !== undefined) return [`sync ${shown(synced)}`];
    const [, from, to] = /(?:link|rename)\w*\(.*?"(.*?)".*"(.*?)".* = 0$/.exec(line) ?? [];
    return from === undefined ? [] : [`name ${shown(from)} ${shown(to)}`];
  });
}

testIf(!skipTraced)(
  "backup, copy, restore and export sync a file before it gets its name, also without hard links, and its directory after, also a new one",
  async () => {
    using place = makeDirectory();
    const { at, path: directory } = place;
    const run = (command: string, ...paths: string[]) =>
      traceNames(directory, [...command.split(" "), ...paths]);
    await run("token create a");
    const withoutLinks = ["-e", "inject=link,linkat:error=EPERM"];
    for (const [name, command, options] of [
      ["b.db", ["backup"], []],
      ["c.db", ["backup"], withoutLinks],
      ["d.db", ["copy", "--to"], []],
    ] as const) {
      const made = await traceNames(directory, [...command, at(name)], options);
      const partial = `./${name}.*.partial/new.db`;
      expect(made.slice(-3)).toEqual([`sync ${partial}`, `name ${partial} ./${name}`, "sync ."]);
    }
    const restore = await run("restore", at("b.db"));
    expect(restore.slice(0, -2)).toContain("sync ./sync.db.*.partial/new.db");
    expect(restore.slice(-2)).toEqual(["name ./sync.db.*.partial/new.db ./sync.db", "sync ."]);
    for (const [name, ...command] of [
      ["token", "create", "a"],
      ["restore", at("b.db")],
    ]) {
      const created = await run(`${name}`, ...command, "--database-url", at(`${name}/new/a.db`));
      expect(created.slice(0, 2)).toEqual([`sync ./${name}`, "sync ."]);
    }
    const output = await run("export users --output", at("u.csv"));
    const named = (name: string) => [
      `sync ${name}.*.partial`,
      `name ${name}.*.partial ${name}`,
      "sync .",
    ];
    const exported = named("./u.csv");
    expect(output.slice(-6)).toEqual([...exported, ...named("./u.csv.sha256")]);
    // A link is followed: the file and its directory are synced, not those of the link.
    fs.mkdirSync(at("links"));
    fs.symlinkSync(at("u.csv"), at("links/u.csv"));
    const followed = await run("export users --force --output", at("links/u.csv"));
    expect(followed.slice(-6, -3)).toEqual(exported);
  },
);
