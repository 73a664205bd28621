// What file systems lack: hard links, owners, permissions.
import { expect, test } from "bun:test";
import { chownSync, existsSync, readdirSync, statSync } from "node:fs";
import { makeDirectory } from "../directory.ts";
import { againstBinary } from "../http/server.ts";
import { binary, runBinary, runProgram } from "../program.ts";
import { skipTraced, startOptionsOf } from "./strace.ts";

const isRoot = process.getuid?.() === 0;

/** Runs a command while the file system refuses system calls with EPERM. */
function runRefused(calls: string, trace: string, args: string[], database: string) {
  const command = ["strace", ...startOptionsOf({ calls, error: "EPERM" }, trace), binary, ...args];
  return runProgram(command, { env: { DATABASE_URL: database } });
}

test.skipIf(!againstBinary || skipTraced || !isRoot)(
  "backup and restore keep a verified file when the file system refuses links, owners or permissions",
  async () => {
    using directory = makeDirectory();
    const path = directory.at("a.db");
    const copy = directory.at("copy.db");
    const trace = directory.at("trace");
    await runBinary(["seed", "--users", "3", "--orders", "2"], { DATABASE_URL: path });
    chownSync(path, 4321, 4321);
    for (const [calls, refused] of [
      ["link,linkat", null],
      ["chown,fchown,lchown,fchownat", "owner"],
      ["chmod,fchmod,fchmodat", "permissions"],
    ] as const) {
      const warning = (what: string) =>
        refused === null
          ? ""
          : `The ${what} needs attention: the file system does not let it have the ${refused} of ${path}\n`;
      const made = await runRefused(calls, trace, ["backup", copy], path);
      expect([calls, made.stderr, made.code]).toEqual([calls, warning("backup"), 0]);
      expect((await Bun.file(trace).text()).includes("INJECTED")).toBe(true);
      // Permissions of the original are not for another group.
      expect(statSync(copy).mode & 0o077).toBe(0);
      const restored = await runRefused(calls, trace, ["restore", copy], path);
      expect([calls, restored.stderr, restored.code]).toEqual([calls, warning("backup"), 0]);
      expect((await runBinary(["check", "--database-url", path])).stdout).toBe("ok\n");
      await runProgram(["rm", copy]);
      chownSync(path, 4321, 4321);
    }
    expect(readdirSync(directory.path).filter((name) => name.includes("partial"))).toEqual([]);
  },
);

test.skipIf(!againstBinary || skipTraced)(
  "a backup has its name only when it is complete and on disk, also without hard links",
  async () => {
    using directory = makeDirectory();
    const path = directory.at("a.db");
    const trace = directory.at("trace");
    await runBinary(["seed", "--users", "3", "--orders", "2"], { DATABASE_URL: path });
    const options = [
      ...["-f", "-q", "-o", trace, "-e", "trace=link,linkat,openat,fsync,rename,renameat"],
      ...["-e", "inject=link,linkat:error=EPERM"],
    ];
    const command = ["strace", ...options, binary, "backup", directory.at("copy.db")];
    const { code } = await runProgram(command, { env: { DATABASE_URL: path } });
    expect([code, existsSync(directory.at("copy.db"))]).toEqual([0, true]);
    const calls = (await Bun.file(trace).text()).split("\n");
    const named = calls.filter((call) => /(?:link|openat|rename)\(.*copy\.db"/.test(call));
    expect(named.map((call) => /\w+(?=\()/.exec(call)?.[0])).toEqual(["link", "rename"]);
    const lastSync = calls.findLastIndex((call) => call.includes("fsync("));
    // That of the directory.
    expect(lastSync).toBeGreaterThan(calls.indexOf(named[1] ?? ""));
  },
);
