// What file systems lack: hard links, owners, permissions, space, shared memory; and mounts.
import { expect, test } from "bun:test";
import { chownSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { againstBinary } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { binary, runBinary, runProgram } from "../support/program.ts";
import { type Fault, skipTraced, startOptionsOf } from "./strace.ts";

const isRoot = process.getuid?.() === 0;

function runWith(fault: Fault, trace: string, args: string[], database: string) {
  const command = ["strace", ...startOptionsOf(fault, trace), binary, ...args];
  return runProgram(command, { env: { DATABASE_URL: database } });
}

test.skipIf(!againstBinary || skipTraced || !isRoot)(
  "backup and restore keep a verified file when the file system refuses links, owners or permissions",
  async () => {
    using directory = makeDirectory();
    const path = directory.at("a.db");
    const copy = directory.at("copy.db");
    const trace = directory.at("trace");
    await fillDatabase(path, 3, 2);
    writeFileSync(`${path}-serving`, "");
    chownSync(path, 4321, 4321);
    for (const calls of ["link,linkat", "chown,fchown,lchown,fchownat", "chmod,fchmod,fchmodat"]) {
      const why = "the file system refuses the owner and the permissions of";
      const warning = calls.startsWith("link") ? "" : `Needs attention: ${why} ${path}\n`;
      const made = await runWith({ calls, error: "EPERM" }, trace, ["backup", copy], path);
      expect([made.stderr, made.code], calls).toEqual([warning, 0]);
      expect((await Bun.file(trace).text()).includes("INJECTED")).toBe(true);
      // Permissions of the original are not for another group.
      expect(statSync(copy).mode & 0o077).toBe(0);
      const restored = await runWith({ calls, error: "EPERM" }, trace, ["restore", copy], path);
      expect([restored.stderr, restored.code], calls).toEqual([warning, 0]);
      expect((await runBinary(["check", "--database-url", path])).stdout).toBe("ok\n");
      await runProgram(["rm", copy]);
      chownSync(path, 4321, 4321);
    }
    expect(readdirSync(directory.path).filter((name) => name.includes("partial"))).toEqual([]);
  },
);

/** A shell that mounts the first path alone at the second one, then runs the rest, in a mount namespace of its own. */
const mountAlone = [
  "unshare",
  "-m",
  "sh",
  "-c",
  'mount --bind "$1" "$2"; shift 2; exec "$@"',
  "sh",
];
const canMount = Bun.spawnSync(["unshare", "-m", "mount", "-t", "tmpfs", "x", "/mnt"]).success;

test.skipIf(!againstBinary || !canMount)(
  "a database that is mounted without its directory is refused, and a backup can be read",
  async () => {
    using directory = makeDirectory();
    const path = directory.at("a.db");
    const backup = directory.at("backup.db");
    // Linux escapes the space.
    const mounted = directory.at("a container/a.db");
    const link = directory.at("link.db");
    mkdirSync(directory.at("a container"));
    symlinkSync(mounted, link);
    writeFileSync(mounted, "");
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
      const { code, stderr } = await runAt(path, link, ...args);
      expect([code, stderr]).toEqual([1, `Cannot ${attempt}: ${why}`]);
    }
    expect(readdirSync(directory.at("a container"))).toEqual(["a.db"]);
    expect((await runAt(backup, mounted, "check")).stdout).toBe("ok\n");
    expect((await runAt(backup, directory.at("new.db"), "restore", mounted)).code).toBe(0);
  },
);

test.skipIf(!againstBinary || skipTraced)(
  "commands name the file system when it has no shared memory",
  async () => {
    using directory = makeDirectory();
    const path = directory.at("a.db");
    await fillDatabase(path, 3);
    const fault = { calls: "mmap", error: "ENODEV", paths: [`${path}-shm`] };
    const args = ["token", "create", "a"];
    const { code, stderr } = await runWith(fault, directory.at("trace"), args, path);
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining(`Cannot open ${path}: its file system (`),
    ]);
    expect(stderr).toMatch(
      /^[^\n]+ lacks the shared memory that SQLite needs: use a local disk\n$/,
    );
  },
);
